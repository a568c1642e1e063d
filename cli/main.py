"""The `cairnmq` command: one group, a file per verb."""

from __future__ import annotations

import sys

import click

from ..base.errors import CairnError
from . import ctl_clients, ctl_connecting, ctl_following, ctl_nodes
from .analyze import analyze
from .as_of import as_of
from .backup import backup, restore
from .broker import broker
from .calibrate import calibrate
from .cluster_lab import cluster_lab
from .ctl import ctl
from .dump import dump
from .explain import explain
from .export import export
from .load import load
from .output import UNREADABLE, WrongCall, printable
from .perftest import perftest
from .replay import replay
from .salvage import salvage
from .sql import sql
from .stat import stat
from .trace import trace
from .users import users
from .verify import verify

__all__ = [
    "cairnmq", "ctl_clients", "ctl_connecting", "ctl_following", "ctl_nodes", "main",
]  # those of ctl_ add their commands to ctl  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cairnmq")
def cairnmq() -> None:
    """CairnMQ: a durable AMQP 1.0 broker, and the tools beside it."""


for command in (
    broker, perftest, dump, load, trace, as_of, replay, verify, stat, explain, calibrate, sql, analyze, export, backup,
    restore, salvage, users, ctl, cluster_lab,
):
    cairnmq.add_command(command)


def main() -> None:
    """Run the command; an error CairnMQ can explain is one line on standard error and exit status 1, or 2."""
    try:
        cairnmq()
    except CairnError as error:
        print(f"cairnmq: {printable(str(error))}", file=sys.stderr)
        sys.exit(UNREADABLE if isinstance(error, WrongCall) else 1)
