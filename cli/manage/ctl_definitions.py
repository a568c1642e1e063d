"""`cairnmq ctl definitions` and `cairnmq ctl wait`."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import Any

import click

from ...base.errors import BrokerError, CairnError, InvalidOption, unreadable
from ..common.units import Duration
from ..options.confirmation import dry_run_option
from .ctl import Tools, ctl, group_named, with_tools

_RETRY_S = 0.2


@group_named("definitions", example="ctl definitions export definitions.json")
def definitions(**_: Any) -> None:
    """Export and import definitions.

    They are queues, exchanges, bindings, templates and users. docs/reference/management.md describes the file.
    """


@definitions.command("export", example="ctl definitions export definitions.json")
@click.argument("file", default="-", type=click.Path(dir_okay=False))
@click.option("--users-file", type=click.Path(dir_okay=False), metavar="FILE", help="Include the users of this file.")
@with_tools
def export_definitions(tools: Tools, file: str, users_file: str | None) -> None:
    """Write the durable definitions as JSON.

    FILE is by default the standard output. Passwords are exported as the verifiers of the users file, which a broker
    does not reveal: with --users-file, a new FILE is readable by its owner only.
    """
    import json  # help does without

    from .definitions import Definitions

    found = Definitions.of_broker(tools.client, users_file)
    text = json.dumps(found.document(), indent=2, ensure_ascii=False) + "\n"
    if file == "-":
        sys.stdout.write(text)
        return
    try:
        with open(file, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as out:
            out.write(text)
    except OSError as error:
        raise CairnError(file, f"can't be written: {error.strerror}", "name another file") from error
    tools.printer.done(f"exported {found.summary()} to {file}")


@definitions.command("import", example="ctl definitions import definitions.json --dry-run")
@click.argument("file", default="-", type=click.Path(dir_okay=False))
@dry_run_option
@with_tools
def import_definitions(tools: Tools, file: str) -> None:
    """Create the definitions of a file.

    Those that the broker has stay as they are. Everything is checked before anything is created: a definition that is
    invalid, or differs from one that exists, ends the command with its name. Nothing is deleted or replaced, so an
    import can be repeated.
    """
    from .definitions import Definitions

    given = Definitions.of_text(file, _text_of(file))
    missing = given.missing(tools.client)
    if tools.is_dry_run:
        tools.printer.done(f"would create {missing.summary()}", missing.document())
        return
    missing.create(tools.client)
    tools.printer.done(f"created {missing.summary()}")


def _text_of(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        with open(file, encoding="utf-8") as stream:
            return stream.read()
    except OSError as error:
        raise unreadable(file, error, "name a file of `ctl definitions export`") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(file, "not UTF-8", "name a file of `ctl definitions export`") from error


@ctl.command("wait", example="ctl wait --deadline 30s")
@click.option("--deadline", default="60s", show_default=True, type=Duration(0), help="Fail after this time.")
@with_tools
def wait(tools: Tools, deadline: float) -> None:
    """Wait until the broker is ready.

    The exit status is 0 when the broker answers requests: its store is recovered, and a member of a cluster serves
    clients.
    """
    from ...amqp.client.login import LoginRefused

    end_s = time.monotonic() + deadline
    while reason := _unready_reason(tools, LoginRefused):
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise CairnError("ctl wait", f"not ready within {deadline:g} s: {reason}", "see the log of the broker")
        time.sleep(min(_RETRY_S, left_s))
    tools.printer.done("the broker is ready")


def _unready_reason(tools: Tools, refused: type[BrokerError]) -> str:
    """Return why the broker is not ready, empty if it is. Raises `BrokerError` if it refuses the login."""
    try:
        tools.client.ask("READ", "broker", "broker")
        cluster = tools.client.ask("READ", "cluster", "cluster")
    except refused:
        raise
    except BrokerError as error:
        tools.client.close()
        return str(error)
    except CairnError:  # it is not in a cluster
        return ""
    return "" if cluster["serving"] else "this member of the cluster does not serve clients"
