"""Addresses and credentials of the connections that the broker opens to other containers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ..base.errors import CairnError
from ..base.secret_files import refuse_exposed
from .sasl.client import Identity

NORMAL, INTER_ROUTER = "normal", "inter-router"
ROLES = (NORMAL, INTER_ROUTER)
PORTS = {"amqp": 5672, "amqps": 5671}
MOST_COST = 1000
_KNOWN = (
    "name", "role", "cost", "ca", "cert", "key", "password-file", "password-env", "hostname", "insecure-auth", "sasl",
    "failover",
)  # fmt: skip
MOST_PASSWORD_BYTES = 4096


@dataclass(frozen=True)
class Target:
    """The address and credentials of a connector. Its text form never contains the password."""

    name: str
    host: str
    port: int
    identity: Identity = Identity()
    tls: bool = False
    ca: str = ""
    """The file of trusted CA certificates; empty for those that the system trusts."""
    cert: str = ""
    """The broker's certificate, for servers that request one; `key` is its key."""
    key: str = ""
    hostname: str = ""
    """The name sent in SASL and open, which the server's certificate must name; `host` by default."""
    sasl: bool = True
    role: str = NORMAL
    cost: int = 1
    """The cost of a link between routers: the cheapest path is used."""
    others: tuple[tuple[str, int], ...] = ()
    """Equivalent hosts and ports, which are tried in turn when this one cannot be reached."""
    password_file: str = ""
    """The file that the password was read from."""

    def read_again(self) -> Target:
        """Return the target with the present password of its file. Raises `CairnError`."""
        if not self.password_file:
            return self
        password = read_password(f"connector {self.name}", self.password_file)
        return replace(self, identity=replace(self.identity, password=password))

    @property
    def called(self) -> str:
        return self.hostname or self.host

    @property
    def place(self) -> str:
        """Return the URL of the target, without any secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.tls else 'amqp'}://{host}:{self.port}"

    @property
    def turns(self) -> tuple[Target, ...]:
        """The addresses to connect to, in the order of attempts."""
        return (self, *[replace(self, host=host, port=port, others=()) for host, port in self.others])


class Dialler(Protocol):
    """A component that opens connections, and reopens them when they break. Any thread."""

    def dial(self, target: Target) -> None:
        """Keep a connection to *target*. Raises `CairnError` if its certificates can't be used."""

    def hang_up(self, name: str) -> None:
        """Close the connections to the target of that name, and open no more."""


def parse(url: str, *, password_file: str = "", secrets_dir: str | None = None) -> Target:
    """Parse a target `amqp[s]://[user[:password]@]host[:port][?name=value&...]`. Raises `CairnError`, without secrets.

    With *secrets_dir*, the URL comes from a client and is stored: it may contain no password, and files may only be
    named in that directory, without a path. If the directory is empty, no files are allowed.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CairnError("connector", f"its URL can't be read: {error}", _REMEDY) from error
    where = f"connector to {parts.hostname or '?'}"
    if parts.scheme not in PORTS or not parts.hostname or parts.path not in ("", "/") or parts.fragment:
        raise CairnError(where, "invalid URL", _REMEDY)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := [one for one in asked if one not in _KNOWN]:
        raise CairnError(where, f"unknown parameter {', '.join(unknown)}", f"use any of {', '.join(_KNOWN)}")
    if secrets_dir is not None:
        if parts.password is not None or "password-env" in asked:
            raise CairnError(where, "its URL may not have a password, or password-env", "name a password-file")
        asked |= {key: _inside(where, secrets_dir, asked[key]) for key in _FILES if asked.get(key)}
    name = asked.get("name") or f"{parts.hostname}:{port or PORTS[parts.scheme]}"
    return Target(
        name, parts.hostname, port or PORTS[parts.scheme], _identity(where, parts, asked, password_file),
        parts.scheme == "amqps", asked.get("ca", ""), asked.get("cert", ""),
        asked.get("key", "") or asked.get("cert", ""), asked.get("hostname", ""),
        _one_of(where, "sasl", asked.get("sasl", "yes"), ("yes", "no")) == "yes",
        _one_of(where, "role", asked.get("role", NORMAL), ROLES), _cost(where, asked.get("cost", "1")),
        _others(where, parts.scheme, asked.get("failover", "")),
        _password_file(parts, asked, password_file),
    )  # fmt: skip


def _others(where: str, scheme: str, said: str) -> tuple[tuple[str, int], ...]:
    """Parse `host[:port],...`. Raises `CairnError`."""
    found = []
    for one in said.split(",") if said else ():
        try:
            parts = urlsplit(f"//{one}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise CairnError(where, f"failover={said}: {error}", "use host:port, separated by commas") from error
        if not host or parts.netloc != one or parts.username is not None:
            raise CairnError(where, f"failover={said}: invalid address {one!r}", "use host:port, separated by commas")
        found.append((host, port or PORTS[scheme]))
    return tuple(found)


def _inside(where: str, directory: str, name: str) -> str:
    """Return the path of the file *name* in the directory. Raises `CairnError`."""
    if not directory or os.path.basename(name) != name or name.startswith("."):
        raise CairnError(where, "it names a file that is not in --secrets-dir", "give the name of a file there")
    return os.path.join(directory, name)


_FILES = ("password-file", "ca", "cert", "key")
_REMEDY = "use amqp://user@host:port or amqps://..., percent-encoded"


def _password_file(parts: SplitResult, asked: Mapping[str, str], password_file: str) -> str:
    """Return the file of the password; empty if the URL has no user, or the password itself."""
    return (asked.get("password-file", "") or password_file) if parts.username and not parts.password else ""


def _identity(where: str, parts: SplitResult, asked: Mapping[str, str], password_file: str) -> Identity:
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    path, variable = _password_file(parts, asked, password_file), asked.get("password-env", "")
    if path:
        password = read_password(where, path)
    elif user and not password and variable:
        password = os.environ.get(variable, "")
        if not password:
            raise CairnError(where, f"the environment variable {variable} is empty", "put the password there")
    if user and not password:
        raise CairnError(where, f"there is no password for {user!r}", "name a password-file, or a password-env")
    insecure = _one_of(where, "insecure-auth", asked.get("insecure-auth", "no"), ("yes", "no")) == "yes"
    return Identity(user, password, bool(asked.get("cert")), insecure)


def read_password(where: str, path: str, exposed: type[CairnError] = CairnError) -> str:
    """Return the password in the file at *path*, which is one line. Raises `CairnError`, which names *where*.

    *exposed*: the error for a file that others may read.
    """
    refuse_exposed(where if path in where else f"{where}: {path}", path, kind=exposed)
    try:
        with open(path, "rb") as file:
            raw = file.read(MOST_PASSWORD_BYTES + 1)
        found = raw.decode().rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CairnError(where, f"the password can't be read from {path}: {reason}", "write it as one line") from error
    if not found or len(raw) > MOST_PASSWORD_BYTES or "\n" in found:
        raise CairnError(where, f"there is no password in {path}", "write it in one line")
    return found


def _one_of(where: str, name: str, said: str, known: tuple[str, ...]) -> str:
    if said not in known:
        raise CairnError(where, f"{name}={said}", f"use {' or '.join(known)}")
    return said


def _cost(where: str, said: str) -> int:
    if not said.isdecimal() or not 1 <= int(said) <= MOST_COST:
        raise CairnError(where, f"cost={said}", f"use 1 to {MOST_COST}")
    return int(said)
