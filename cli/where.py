"""Which broker a command talks to, and as whom: the same for all that do so over AMQP."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import click

PASSWORD = "CAIRNMQ_PASSWORD"
SCHEMES = ("amqp", "amqps")
PORTS = {"amqp": 5672, "amqps": 5671}


def checked_url(url: str) -> tuple[str, Any]:
    """The URL with its scheme, and its parts. Raises `click.UsageError`."""
    url = url if "://" in url else f"amqp://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise click.UsageError(f"{url}: {error}") from error
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or parts.password is not None:
        raise click.UsageError(f"{url}: a URL is like amqp://host:port or amqps://host:port, and has no password")
    return url, parts


def password_of(user: str) -> str:
    """From the environment, or asked for."""
    password = os.environ.get(PASSWORD)
    return password if password is not None else click.prompt(f"password of {user}", hide_input=True, err=True)
