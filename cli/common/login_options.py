"""The broker that a command connects to over AMQP, and the login there."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

import click

from ...base.errors import InvalidOption
from ..options.common_options import PASSWORD, PASSWORD_FILE, USER

if TYPE_CHECKING:
    from ...amqp.client.login import BrokerLogin

PORTS = {"amqp": 5672, "amqps": 5671}


def checked_url(url: str) -> SplitResult:
    """Return the parts of the URL, whose default scheme is amqp. Raises `click.UsageError`."""
    url = url if "://" in url else f"amqp://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise click.UsageError(f"{url}: {error}; use amqp://host:port") from error
    if parts.scheme not in PORTS or not parts.hostname or port == 0 or parts.password is not None:
        raise click.UsageError(f"{url}: a URL is like amqp://host:port or amqps://host:port, and has no password")
    return parts


def user_of(url: str, user: str | None) -> str | None:
    """Return *user*, or the user of the URL, or that of the environment. Raises `click.UsageError`."""
    if user is not None:
        return user
    name = checked_url(url).username
    return unquote(name) if name else os.environ.get(USER) or None


def requests_password(url: str, user: str | None) -> bool:
    """Return whether `login_of` would request a password on the terminal. Raises `click.UsageError`."""
    return PASSWORD not in os.environ and _password_file() is None and user_of(url, user) is not None


def password_of(user: str) -> str:
    """Return the password of *user*: from a file, the environment, or a prompt on the terminal."""
    if path := _password_file():
        from ...amqp.connector_target import read_password

        return read_password(f"password file {path}", path, InvalidOption)
    if PASSWORD in os.environ:
        return os.environ[PASSWORD]
    if not _has_terminal():  # getpass would print warnings, and read standard input visibly
        raise InvalidOption(f"user {user!r}", "no password given", f"set {PASSWORD}, or name a --password-file")
    return str(click.prompt(f"password of {user}", hide_input=True, err=True))


def _password_file() -> str | None:
    """Return the file of the option, or else that of the environment unless it has the password itself."""
    context = click.get_current_context(silent=True)
    if context is not None and PASSWORD_FILE in context.meta:
        return str(context.meta[PASSWORD_FILE])
    return None if PASSWORD in os.environ else os.environ.get(PASSWORD_FILE) or None


def _has_terminal() -> bool:
    if sys.stdin.isatty():
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def login_of(url: str, user: str | None, ca: str | None, timeout_s: float = 10.0) -> BrokerLogin:
    """The broker of *url*, and the login there. Asks for a password if the environment has none."""
    from ...amqp.client.login import BrokerLogin  # with SASL and TLS: help and completion do without

    parts = checked_url(url)
    user = user_of(url, user)
    password = password_of(user) if user is not None else ""
    port = parts.port or PORTS[parts.scheme]
    return BrokerLogin(parts.hostname or "", port, parts.scheme == "amqps", ca, user, password, timeout_s)
