"""The `cairnmq` command: one group, a file per verb. A command's file is imported when the command is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from ..base.errors import CairnError
from ..base.printable import printable
from ..base.private_files import tighten_umask
from .common.signals import status_of
from .common.statuses import UNREADABLE, WrongCall

COMMANDS = {
    "broker": ("run.broker",),
    "config": ("run.config",),
    "perftest": ("test.perftest",),
    "dump": ("store.dump",),
    "load": ("store.load",),
    "trace": ("history.trace",),
    "as-of": ("history.as_of",),
    "replay": ("history.replay",),
    "verify": ("store.verify",),
    "stat": ("store.stat",),
    "explain": ("history.explain",),
    "calibrate": ("test.calibrate",),
    "sql": ("analyze.sql",),
    "analyze": ("analyze.analyze",),
    "export": ("analyze.export",),
    "backup": ("store.backup",),
    "restore": ("store.backup",),
    "salvage": ("store.salvage",),
    "users": ("manage.users",),
    "ctl": ("manage.ctl", "manage.ctl_nodes", "manage.ctl_clients", "manage.ctl_connectors", "manage.ctl_federation"),
    "cluster-lab": ("test.cluster_lab",),
}
"""Command to the modules that make it; the first defines it, the others add to it."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C, also during imports, exits with 130: click's own status for it is 1, as for something that was found."""
    try:
        yield
    except KeyboardInterrupt as error:
        print("cairnmq: interrupted", file=sys.stderr)
        sys.exit(status_of(error))


class LazyGroup(click.Group):
    """A group that imports a command when it is called or listed: a start costs what the command needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _interruptible():  # help imports all commands
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _interruptible():
            return super().invoke(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        first, *_ = [import_module(f".{name}", __package__) for name in COMMANDS[cmd_name]]
        found = getattr(first, cmd_name.replace("-", "_"))
        assert isinstance(found, click.Command)
        return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cairnmq")
def cairnmq() -> None:
    """CairnMQ: a durable AMQP 1.0 broker, and the tools beside it."""


def main() -> None:
    """Run the command; an error CairnMQ can explain is one line on standard error and exit status 1, or 2."""
    tighten_umask()  # exports, reports and what libraries create: messages may be in any of them
    try:
        cairnmq()
    except CairnError as error:
        print(f"cairnmq: {printable(str(error))}", file=sys.stderr)
        sys.exit(UNREADABLE if isinstance(error, WrongCall) else 1)
