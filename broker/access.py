"""Access rules: who may do what to which names.

A rules file is TOML:

    [groups]
    clerks = ["anna", "ben"]

    [[rules]]
    who = ["group:clerks"]            # users, groups, "anonymous", or "*" for everybody
    may = ["connect", "send", "browse"]
    on = ["orders", "orders.*"]       # patterns as a shell has them; every name if it is left out

    [[rules]]
    who = ["ben"]
    may_not = ["*"]                   # every operation

The first rule that fits user, operation and name decides; what no rule is about may not be done. Names are those the
broker found the address to mean, and are compared as they are: a name with a `*` in it is only a name (A14). For
`connect` there is no name, and `on` says nothing.

Whoever answers for an operation asks `Access.why_not`: the broker for links, the management node for all it does,
reading included (A13). An operation on two names, such as a queue with an alternate exchange, asks for both.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from typing import Any, NamedTuple

from ..accounts.users import ANONYMOUS
from ..base.errors import CairnError

CONNECT, SEND, RECEIVE, BROWSE, CREATE, DELETE = "connect", "send", "receive", "browse", "create", "delete"
LOOK = "look"
"""Read what management tells of a name."""
MANAGE = "manage"
"""Change it by management: purge, bind, set its properties."""
OPERATIONS = (CONNECT, SEND, RECEIVE, BROWSE, CREATE, DELETE, LOOK, MANAGE)

EVERY = "*"
MAX_FILE_BYTES = 16 << 20
_GROUP = "group:"
_REMEDY = "mend the file; the README shows one"


class Forbidden(Exception):
    """The user may not do that."""


class _Rule(NamedTuple):
    who: frozenset[str]
    """Names of users, groups resolved; `EVERY` for everybody."""
    operations: frozenset[str]
    allowed: bool
    names: re.Pattern[str] | None
    """None: every name."""

    def fits(self, user: str, operation: str, name: str) -> bool:
        return (
            operation in self.operations
            and (EVERY in self.who or user in self.who)
            and (self.names is None or operation == CONNECT or self.names.match(name) is not None)
        )


class Access:
    """The rules of one file. Never changes; any thread."""

    def __init__(self, rules: tuple[_Rule, ...]) -> None:
        self._rules = rules

    def why_not(self, user: str, operation: str, name: str = "") -> str:
        """Why *user* (empty: nobody in particular) may not do *operation* on *name*; empty if they may.

        The sentence is fit for the client: it says nothing about what there is.
        """
        called = user or ANONYMOUS
        for rule in self._rules:
            if rule.fits(called, operation, name):
                if rule.allowed:
                    return ""
                break
        shown = name if len(name) <= 80 else name[:80] + "..."
        return f"{called!r} may not {operation}" + (f" {shown!r}" if operation != CONNECT else "")


def read(path: str) -> Access:
    """The rules of the file at *path*. Raises `CairnError` with place, reason and remedy."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CairnError(path, f"can't be read: {error.strerror}", "name a file of access rules that can") from error
    if len(data) > MAX_FILE_BYTES:
        raise CairnError(path, f"it is longer than {MAX_FILE_BYTES >> 20} MiB", "those are no access rules")
    return parse(data, path)


def parse(data: bytes, path: str) -> Access:
    """The rules that stand in *data*; *path* is for errors."""
    try:
        top = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CairnError(path, f"it is no TOML: {error}", _REMEDY) from error
    place = path
    try:
        _only(top, "groups", "rules")
        groups: dict[str, list[str]] = {}
        for name, members in _table(top.get("groups", {})).items():
            place = f"{path}, group {name!r}"
            groups[name] = _strings(members)
        rules = []
        listed = top.get("rules", [])
        if not isinstance(listed, list):
            raise ValueError("rules are a list: begin each with [[rules]]")
        for number, rule in enumerate(listed, 1):
            place = f"{path}, rule {number}"
            rules.append(_rule(_table(rule), groups))
    except ValueError as error:
        raise CairnError(place, str(error), _REMEDY) from error
    return Access(tuple(rules))


def _rule(table: dict[str, Any], groups: dict[str, list[str]]) -> _Rule:
    _only(table, "who", "may", "may_not", "on")
    if ("may" in table) == ("may_not" in table):
        raise ValueError("a rule has `may` or `may_not`, and not both")
    who: set[str] = set()
    for name in _strings(table.get("who")):
        if not name.startswith(_GROUP):
            who.add(name)
        elif name.removeprefix(_GROUP) in groups:
            who.update(groups[name.removeprefix(_GROUP)])
        else:
            raise ValueError(f"there is no group {name.removeprefix(_GROUP)!r}")
    allowed = "may" in table
    operations = set(_strings(table["may" if allowed else "may_not"]))
    if EVERY in operations:
        operations = set(OPERATIONS)
    if unknown := operations - set(OPERATIONS):
        raise ValueError(f"there is no operation {min(unknown)!r}; there are {', '.join(OPERATIONS)}")
    names = None
    if "on" in table:
        names = re.compile("|".join(fnmatch.translate(pattern) for pattern in _strings(table["on"])))
    return _Rule(frozenset(who), frozenset(operations), allowed, names)


def _only(table: dict[str, Any], *known: str) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"{key!r} means nothing here; {', '.join(known)} do")


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a table is expected")
    return value


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise ValueError("a list of strings is expected, with at least one in it, for `who`, `may` and `on`")
    return value
