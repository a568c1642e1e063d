"""`cairnmq broker`: run a broker until it receives a signal to stop."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import FrameType

import click

from ...base.clock import SystemClock
from ...base.errors import CairnError
from ...broker_plugin.options import BrokerOptions, RunTimeOptions
from ...broker_plugin.run import RunningBroker
from ...broker_plugin.service_manager import service_manager
from ..common.configured_command import ConfiguredCommand, config_option
from ..common.described_options import FILE, options_of
from ..common.log import set_level
from ..common.signals import Ended
from .announcements import announce, reporting_errors
from .broker_options import auto_create_of, checked_options, quota_of
from .console_process import ConsoleProcess
from .recovery_progress import RecoveryProgress
from .settings import BrokerSettings
from .unknown_variables import unknown_variables

GARBAGE_AFTER = 20_000
"""The allocations between collections of cycles. Messages in transit are thousands of
objects that are in no cycle; the default is 700."""


def _broker(given: BrokerSettings) -> None:
    """Run a durable AMQP 1.0 broker until SIGTERM or Ctrl-C.

    Each option can also be set by an environment variable (--store-dir: CAIRNMQ_STORE_DIR; several values are
    separated by spaces) and in a configuration file (store-dir = "./data"). The command line overrides the environment,
    and the environment overrides the file. `cairnmq config show` prints all values and where they come from.
    """
    serve(given, click.get_current_context())


broker = ConfiguredCommand(
    "broker",
    callback=reporting_errors(_broker),
    params=[config_option(), *options_of(BrokerSettings)],
    help=_broker.__doc__,
    short_help="Run a broker",
    example="broker --store-dir ./data --port 5672",
)


def serve(
    given: BrokerSettings, context: click.Context, started: Callable[[RunningBroker, str], None] = lambda *_: None
) -> None:
    """Run a broker until it receives a signal. *context*: that of the command `broker`, which a reload parses again.

    *started* is called when the broker serves, with the URL of the web console, empty without one.
    """
    for warning in unknown_variables(broker, given.connect_to):
        announce("broker.unknown-variable", warning, logging.WARNING)
    options = checked_options(given)
    sys.setswitchinterval(0.0005)  # else the flusher may wait 5 ms for the interpreter after each sync
    gc.freeze()  # objects that exist now live until the end
    gc.set_threshold(GARBAGE_AFTER, 20, 20)
    _run(options, given, context, started)


def _run(
    options: BrokerOptions, given: BrokerSettings, context: click.Context,
    started: Callable[[RunningBroker, str], None],
) -> None:  # fmt: skip
    web_console = None if given.http_port is None else ConsoleProcess(given, context)
    if web_console is not None:
        options = replace(options, router=replace(options.router, console_token=web_console.token))
    stop = _Stop()
    manager = service_manager(os.environ, os.getpid())
    reread = partial(_reread, context, given, web_console)
    running = RunningBroker(options, RecoveryProgress(SystemClock()), manager, reread)
    stop.started = True
    _announce_start(running, given)
    if FILE in context.meta:
        announce("broker.config", f"configuration from {context.meta[FILE].path}")
    for line in running.recovery.lines():
        announce("broker.recovered", line)
    if running.recovery.lines()[0] == "new store" and given.store != "memory":
        announce("broker.store-created", f"created a new store in {given.store_dir}")
    if web_console is not None:
        web_console.start(running)
        announce("broker.console", f"web console at {web_console.url}")
    started(running, "" if web_console is None else web_console.url)
    while not running.wait(0.2) and not stop.asked:
        if stop.reload_asked:
            stop.reload_asked = False
            with suppress(CairnError):  # it was logged
                running.reload()
    if running.failure is not None:
        running.end_connections()
        raise CairnError("broker", f"stopped: {running.failure}")
    announce("broker.stopping", "shutting down")
    if web_console is not None:
        web_console.stop()
    running.stop()
    announce("broker.stopped", "stopped" if given.store == "memory" else "stopped; everything is on the disk")


def _announce_start(running: RunningBroker, given: BrokerSettings) -> None:
    if running.address:
        announce("broker.listening", f"listening on {running.address}")
    if running.tls_address:
        announce("broker.listening-tls", f"listening with TLS on {running.tls_address}")
    announce("broker.storing", f"storing in {'memory' if given.store == 'memory' else given.store_dir}")
    if given.connect is not None:
        announce("broker.wiring", f"{'everything' if given.store == 'sql' else 'wiring'} in {running.wiring_place}")
    if running.metrics_url:
        announce("broker.metrics", f"metrics at {running.metrics_url}")
    if given.cluster_name is not None:
        announce("broker.cluster", f"member of cluster {given.cluster_name}")
    if given.archive_dir is not None:
        announce("broker.archiving", f"archiving in {given.archive_dir}")
    if running.sidecar_dir:
        announce("broker.sidecars", f"sidecars in {running.sidecar_dir}")
    if given.export_to is not None:
        announce("broker.exporting", f"exporting to {given.export_to}")


def _reread(
    context: click.Context, begun_with: BrokerSettings, web_console: ConsoleProcess | None
) -> RunTimeOptions:
    """Return the options that a reload changes, from the same sources. Options that need a restart are only reported.

    Raises `CairnError`. Any thread.
    """
    try:
        now = BrokerSettings(**broker.parsed_again(context).params)
    except click.ClickException as error:
        raise CairnError("configuration", error.format_message()) from error
    pending = tuple(
        option.key for option in broker.described().values()
        if not option.can_reload and getattr(now, str(option.name)) != getattr(begun_with, str(option.name))
    )  # fmt: skip

    def apply() -> None:
        set_level("debug" if now.verbose else now.log_level)
        if web_console is not None:
            web_console.reload()
        if pending:
            text = f"changed, and used from the next start on: {', '.join(pending)}"
            announce("broker.restart-needed", text, logging.WARNING)

    return RunTimeOptions(
        quota_of(now), now.audit_logins, auto_create_of(now), now.memory_limit, now.max_connections,
        now.max_connections_per_user, pending, apply,
    )  # fmt: skip


class _Stop:
    """Set by SIGTERM and Ctrl-C. Until the broker has started they end it at once, as a crash would: that is safe.

    SIGHUP has files read again.
    """

    def __init__(self) -> None:
        self.asked = False
        self.reload_asked = False
        self.started = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, self._ask)
        signal.signal(signal.SIGHUP, self._ask_for_reload)

    def _ask_for_reload(self, number: int, frame: FrameType | None) -> None:
        self.reload_asked = True

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.started:
            raise Ended(number)
        self.asked = True
