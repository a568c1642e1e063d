"""The `cairnmq` command: one group, a file per verb."""

from __future__ import annotations

import sys

import click

from ..base.errors import CairnError
from . import ctl_clients, ctl_nodes
from .backup import backup, restore
from .broker import broker
from .ctl import ctl
from .dump import dump
from .salvage import salvage
from .users import users

__all__ = ["cairnmq", "ctl_clients", "ctl_nodes", "main"]  # the last two add their commands to ctl


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cairnmq")
def cairnmq() -> None:
    """CairnMQ: a durable AMQP 1.0 broker, and the tools beside it."""


for command in (broker, dump, backup, restore, salvage, users, ctl):
    cairnmq.add_command(command)


def main() -> None:
    """Run the command; an error CairnMQ can explain is one line on standard error and exit status 1."""
    try:
        cairnmq()
    except CairnError as error:
        print(f"cairnmq: {error}", file=sys.stderr)
        sys.exit(1)
