"""The `cairnmq` command: one group, a file per verb. A command's file is imported when the command is called."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from .. import __version__
from ..base.errors import CairnError
from ..base.printable import printable
from ..base.private_files import tighten_umask
from .common.signals import status_of
from .common.standard_streams import open_missing_streams, written_output
from .common.statuses import UNREADABLE, error_status
from .early_signals import end_at_once
from .options.common_options import CommonGroup, log_options, output_options, url_option, user_option, with_color
from .options.subjects import example_of


class _Entry(NamedTuple):
    """A command before it is imported."""

    subject: str
    text: str
    """The short help."""
    modules: tuple[str, ...]
    """The first one defines the command, the others add to it."""
    example: str = ""
    """Arguments of a call; empty if the help of the command has examples."""


_CTL = (
    "manage.ctl", "manage.ctl_nodes", "manage.ctl_clients", "manage.ctl_connectors", "manage.ctl_federation",
    "manage.ctl_definitions",
)  # fmt: skip
COMMANDS = {
    "broker": _Entry("Run", "Run a broker", ("run.broker",)),
    "dev": _Entry("Run", "Run a broker to try, with samples", ("run.dev",), "dev"),
    "console": _Entry("Run", "Serve the web console of a broker", ("run.console",)),
    "config": _Entry("Run", "Check and show the configuration", ("run.config",)),
    "doctor": _Entry("Run", "Check the host and a store", ("run.doctor",)),
    "support-bundle": _Entry("Run", "Collect diagnostic data", ("run.doctor",)),
    "users": _Entry("Run", "Manage the users file", ("manage.users",)),
    "send": _Entry("Manage", "Send messages", ("manage.messages",)),
    "receive": _Entry("Manage", "Receive messages", ("manage.messages",)),
    "ctl": _Entry("Manage", "Manage a running broker", _CTL),
    "completion": _Entry("Manage", "Print a shell completion script", ("manage.completion",)),
    "man": _Entry("Manage", "Show the manual of a command", ("manage.man",)),
    "stat": _Entry("Store", "Show the disk usage of a store", ("store.stat",), "stat ./data"),
    "explain": _Entry("Store", "Explain the size of a store", ("history.explain",), "explain space ./data"),
    "verify": _Entry("Store", "Verify a store", ("store.verify",), "verify ./data"),
    "dump": _Entry("Store", "Print journal records", ("store.dump",), "dump ./data --json --since 10m"),
    "load": _Entry("Store", "Make a store from a dump", ("store.load",), "load ./copy dump.jsonl"),
    "backup": _Entry("Store", "Back up a store", ("store.backup",), "backup ./data ./backup"),
    "restore": _Entry("Store", "Restore a backup", ("store.backup",), "restore ./backup ./data"),
    "salvage": _Entry(
        "Store", "Recover messages from a damaged store", ("store.salvage",), "salvage ./damaged --to ./new"
    ),
    "trace": _Entry("History", "Show the lifetime of a message", ("history.trace",), "trace ./data 1088"),
    "as-of": _Entry("History", "Show or restore queues at a point in time", ("history.as_of",), "as-of ./data 1h"),
    "replay": _Entry(
        "History", "Send recorded messages again", ("history.replay",), "replay ./data --from-time 1h --to amqp://host"
    ),
    "sql": _Entry("Analyze", "Query a journal in SQL", ("analyze.sql",), "sql ./data 'from queues'"),
    "analyze": _Entry("Analyze", "Run Spark reports on a journal", ("analyze.analyze",), "analyze lifetimes ./data"),
    "export": _Entry(
        "Analyze", "Export records to Parquet, Delta or Iceberg", ("analyze.export",),
        "export ./data ./tables --format parquet",
    ),
    "perftest": _Entry(
        "Test", "Measure throughput, latency and durability", ("test.perftest",),
        "perftest --npubs 4 --nsubs 4 --count 100000",
    ),
    "calibrate": _Entry("Test", "Measure a disk and suggest options", ("test.calibrate",), "calibrate ./data"),
    "cluster-lab": _Entry("Test", "Run a cluster lab on this machine", ("test.cluster_lab",), "cluster-lab up 3"),
}


_BELOW_CTL = (
    "definitions", "wait",
    "queues", "exchanges", "bindings", "templates", "connections", "links", "sessions", "transactions", "connectors",
    "link-routes", "auto-links", "federated-queues", "routers", "store", "cluster", "reload",
)  # fmt: skip
"""Commands below `ctl` that are suggested for their names alone: `users` is another command, too."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C, also during imports, exits with 130: click's own status for it is 1, as for something that was found."""
    try:
        yield
    except KeyboardInterrupt as error:
        print("cairnmq: interrupted", file=sys.stderr)
        sys.exit(status_of(error))


class LazyGroup(CommonGroup):
    """A group that imports a command when it is called: a start costs what the command needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _interruptible(), written_output():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _interruptible(), written_output():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by their subjects."""
        for subject in dict.fromkeys(entry.subject for entry in COMMANDS.values()):
            with formatter.section(subject):
                formatter.write_dl([(name, one.text) for name, one in COMMANDS.items() if one.subject == subject])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names of commands without importing them."""
        found = [CompletionItem(name, help=one.text) for name, one in COMMANDS.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            names = {**{name: name for name in COMMANDS}, **{name: f"ctl {name}" for name in _BELOW_CTL}}
            for near in get_close_matches(args[0], names, 1):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {names[near]!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        first, *_ = [import_module(f".{name}", __package__) for name in COMMANDS[cmd_name].modules]
        if signal.getsignal(signal.SIGINT) is end_at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # commands clean up
        found = getattr(first, cmd_name.replace("-", "_"))
        assert isinstance(found, click.Command)
        with_color(found)
        if COMMANDS[cmd_name].example:
            found.epilog = example_of(COMMANDS[cmd_name].example)
        return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@output_options
@url_option
@user_option
@log_options
def cairnmq(**_: Any) -> None:
    """CairnMQ: a durable AMQP 1.0 broker, and its tools.

    Options of this help may also follow a command that has them.

    \b
    Examples:
      cairnmq broker --store-dir ./data
      cairnmq ctl queues list
    """


with_color(cairnmq)


def main() -> None:
    """Run the command; an error CairnMQ can explain is one line on standard error and exit status 1, or 2."""
    open_missing_streams()
    tighten_umask()  # exports, reports and what libraries create: messages may be in any of them
    try:
        cairnmq()
    except CairnError as error:
        print(f"cairnmq: {printable(str(error))}", file=sys.stderr)
        sys.exit(error_status(error))
    except UnicodeEncodeError as error:
        if not any(error.object in word for word in sys.argv):
            raise
        text = f"cairnmq: argument {error.object!a}: invalid UTF-8; use a locale and a terminal with UTF-8"
        print(text, file=sys.stderr)
        sys.exit(UNREADABLE)
