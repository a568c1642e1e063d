"""`cairnmq users`: who can log in to a broker with a password."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from ...base.accounts import users as users_file
from ...base.accounts.credentials import FEWEST_ITERATIONS, ITERATIONS, MOST_ITERATIONS, Credentials, make, prove
from ...base.errors import CairnError, InvalidOption
from ...base.texts import counted
from ..common.statuses import invalid_options
from ..options.common_options import CommonGroup, output_options
from ..options.confirmation import confirm, destructive

MAX_PASSWORD_BYTES = 1024
SHORT = 12
"""Passwords with fewer characters are warned of."""
_Check = Callable[[Mapping[str, Credentials], str, str], object]


@click.group("users", cls=CommonGroup, example="users add anna --users-file ./users")
@output_options
def users(**_: Any) -> None:
    """Manage the users file of a broker.

    Passwords are requested, or read from standard input if it is not a terminal. The file holds SCRAM-SHA-256
    verifiers only. A broker with the same --users-file applies changes at the next login.
    """


_file = click.option("--users-file", "path", required=True, type=click.Path(dir_okay=False), help="The users file.")
_iterations = click.option(
    "--iterations", default=ITERATIONS, show_default=True, type=click.IntRange(FEWEST_ITERATIONS, MOST_ITERATIONS),
    help="SCRAM iterations: cost of a login, and of a guess.",
)  # fmt: skip


@users.command(example="users add anna --users-file ./users")
@click.argument("name")
@_file
@_iterations
def add(name: str, path: str, iterations: int) -> None:
    """Add a user; create the file if needed."""
    reason = users_file.invalid_name_reason(name)
    if reason:
        raise InvalidOption(f"user {name!r}", reason, "choose another name")
    if os.path.lexists(path):  # before a password is asked for
        _unknown(_read(path), name, path)
    _set_password(path, _unknown, name, iterations)
    print(f"added {name} to {path}")


@users.command(example="users password anna --users-file ./users")
@click.argument("name")
@_file
@_iterations
def password(name: str, path: str, iterations: int) -> None:
    """Change the password of a user."""
    _known(_read(path), name, path)
    _set_password(path, _known, name, iterations)
    print(f"changed the password of {name} in {path}")


@users.command(example="users remove anna --users-file ./users")
@click.argument("name")
@_file
@destructive
def remove(name: str, path: str, is_sure: bool, is_dry_run: bool) -> None:
    """Remove a user.

    Connections of the user stay open until `cairnmq ctl reload`.
    """
    _known(_read(path), name, path)
    if is_dry_run:
        print(f"would remove {name} from {path}")
        return
    confirm(path, f"Remove {name}?", is_sure=is_sure)
    _change(path, _known, name, None)
    print(f"removed {name} from {path}")


@users.command("list", example="users list --users-file ./users")
@_file
@output_options
def list_users(path: str, output_format: str) -> None:
    """List users."""
    from ..common.output import print_rows  # other commands and help do without

    rows = [{"name": name, "iterations": kept.iterations} for name, kept in _read(path).items()]
    if not print_rows(rows, ("name", "iterations"), output_format):
        for row in rows:
            print(row["name"])


@users.command(example="users check --users-file ./users")
@click.argument("name", required=False)
@_file
@output_options
def check(name: str | None, path: str, output_format: str) -> None:
    """Check the file, or a password of NAME.

    The file must be complete, and other users must not be able to read it.
    """
    from ..common.output import print_fields

    found = _read(path)
    if name is not None:
        kept = _known(found, name, path)
        if not prove(_ask(f"Password of {name}", again=False), kept):
            raise CairnError(path, f"that is not the password of {name!r}", "set it with `cairnmq users password`")
    fields = {"file": path, "users": len(found)} | ({} if name is None else {"password_of": name})
    if not print_fields(fields, output_format):
        good = f"{path}: OK, {counted(len(found), 'user')}"
        print(good if name is None else f"that is the password of {name}")


def _read(path: str) -> Mapping[str, Credentials]:
    """Return the users of the file at *path*. Raises `InvalidOption` if it can't be read."""
    with invalid_options():
        return users_file.read(path).accounts


def _change(path: str, check: _Check, name: str, kept: Credentials | None) -> None:
    """Change a user of the file, after *check* of its present users; None removes the user."""

    def edit(accounts: dict[str, Credentials]) -> None:
        check(accounts, name, path)
        if kept is None:
            del accounts[name]
        else:
            accounts[name] = kept

    users_file.change(path, edit)


def _known(accounts: Mapping[str, Credentials], name: str, path: str) -> Credentials:
    if name not in accounts:
        raise CairnError(path, f"it has no user {name!r}", "list them by `cairnmq users list`")
    return accounts[name]


def _unknown(accounts: Mapping[str, Credentials], name: str, path: str) -> None:
    if name in accounts:
        raise CairnError(path, f"it has a user {name!r} already", "change the password by `cairnmq users password`")


def _set_password(path: str, check: _Check, name: str, iterations: int) -> None:
    """Ask for a password, keep its verifier, and warn of a short one."""
    given = _ask(f"Password of {name}", again=True)
    try:
        made = make(given, iterations)
    except ValueError as error:
        raise CairnError(f"the password of {name!r}", f"can't be used: {error}", "choose another one") from error
    _change(path, check, name, made)
    if len(given) < SHORT:
        text = f"warning: the password of {name!r} has fewer than {SHORT} characters: programs guess such ones"
        click.echo(f"{text}; use `openssl rand -base64 18`", err=True)


def _ask(text: str, *, again: bool) -> str:
    """A password from the terminal, unseen; or the first line of standard input."""
    if sys.stdin.isatty():
        return str(click.prompt(text, hide_input=True, confirmation_prompt=again, err=True))
    line = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES + 2).rstrip(b"\r\n")
    if len(line) > MAX_PASSWORD_BYTES:
        raise CairnError("standard input", f"a password has up to {MAX_PASSWORD_BYTES} bytes", "choose another one")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CairnError("standard input", "the password is not UTF-8", "choose another one") from error
