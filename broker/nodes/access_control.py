"""Access rules: the operations that users may do on names, from a file that `docs/reference/access.md` describes.

The first rule that matches user, operation and name decides; requests that match no rule are denied. Names are those
that the broker resolved the address to, and are compared literally: a queue's name with a `*` in it is only a name
(A14). `connect` has no name, and `on` is ignored for it.

Templates and link routes are named by patterns, and a rule that matches such a pattern as a text may not match all the
names that the pattern matches. Therefore a pattern is compared with a rule as a pattern (`Access.denial_reason` with
*pattern*): it is allowed only if every name that it matches is allowed.

Every operation calls `Access.denial_reason`: the broker for links, the management node for all its operations with
reads (A13). An operation on two names, such as a queue with an alternate exchange, checks both.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from typing import Any, NamedTuple

from ...base.accounts.credentials import canonical_name
from ...base.accounts.users import ANONYMOUS, EVERYBODY
from ...base.errors import CairnError, unreadable
from ...base.secret_files import refuse_exposed
from ..users.quotas import Quotas, limits_of

CONNECT, SEND, RECEIVE, BROWSE, CREATE, DELETE = "connect", "send", "receive", "browse", "create", "delete"
MONITOR = "monitor"
"""Read it by management: attributes and figures, never messages."""
MANAGE = "manage"
"""Change it by management: purge it, bind it, set its arguments, close it."""
CONFIGURE = "configure"
"""The operation to add, change or remove nodes that act for other clients.

These are templates, connectors, link routes, auto-links and queues that follow a queue of another site.
"""
USE = "use"
"""The operation to send messages over a connector, `$connector/NAME`: by link routes, auto-links and federation.

It includes everything that the connector's user may do at the other end.
"""
OPERATIONS = (CONNECT, SEND, RECEIVE, BROWSE, CREATE, DELETE, MONITOR, MANAGE, CONFIGURE, USE)

CONNECTOR_PREFIX = "$connector/"
"""Before the name of a connector, in rules."""
EVERY = EVERYBODY
MAX_FILE_BYTES = 16 << 20
_GROUP = "group:"
_REMEDY = "correct the file; see 'Access rules' in the documentation"


class Forbidden(Exception):
    """The denial of an operation by the access rules."""


class _Rule(NamedTuple):
    who: frozenset[str]
    """Names of users, groups resolved; `EVERY` for all users."""
    operations: frozenset[str]
    allowed: bool
    names: re.Pattern[str] | None
    """The names that the rule applies to; None for every name."""
    patterns: tuple[str, ...]
    """The patterns from which `names` is compiled."""

    def fits(self, user: str, operation: str, name: str, *, pattern: bool) -> bool:
        """Return whether the rule decides about *name*, or about all names that it matches if it is a *pattern*.

        A rule that allows decides about a pattern that it covers, a rule that denies about one that it may overlap.
        """
        if operation not in self.operations or not (EVERY in self.who or user in self.who):
            return False
        if self.names is None or operation == CONNECT:
            return True
        if not pattern or _is_literal(name):
            return self.names.match(name) is not None
        compare = _covers if self.allowed else _may_overlap
        return any(compare(one, name) for one in self.patterns)


class Access:
    """The rules of one file. Never changes; any thread."""

    def __init__(self, rules: tuple[_Rule, ...], quotas: Quotas) -> None:
        self._rules = rules
        self.quotas = quotas
        """The file's quotas, over no defaults."""

    def denial_reason(self, user: str, operation: str, name: str = "", *, pattern: bool = False) -> str:
        """Return why *user* (empty: an anonymous client) may not do *operation* on *name*; empty if it is allowed.

        *pattern*: the name is a pattern, and the result applies to all names that it matches. The text may be sent to
        the client: it does not reveal which nodes exist.
        """
        called = user or ANONYMOUS
        for rule in self._rules:
            if rule.fits(called, operation, name, pattern=pattern):
                if rule.allowed:
                    return ""
                break
        shown = name if len(name) <= 80 else name[:80] + "..."
        return f"{called!r} may not {operation}" + (f" {shown!r}" if operation != CONNECT else "")

    def allows_somewhere(self, user: str, operation: str) -> bool:
        """Return whether a rule allows *operation* to *user* on some names; other rules may deny it on all of them."""
        rules = (rule for rule in self._rules if rule.allowed and operation in rule.operations)
        return any(EVERY in rule.who or (user or ANONYMOUS) in rule.who for rule in rules)

    def allows_on_all(self, user: str, operation: str) -> bool:
        """Return whether a rule of *user*, not one for all users, allows *operation* on every name."""
        rules = (rule for rule in self._rules if rule.allowed and rule.names is None)
        return any(operation in rule.operations and (user or ANONYMOUS) in rule.who for rule in rules)


_WILDCARDS = "*?["


def _is_literal(pattern: str) -> bool:
    return not any(char in pattern for char in _WILDCARDS)


def _literal_prefix(pattern: str) -> str:
    """Return the prefix of all names that *pattern* matches."""
    return pattern[: min((at for char in _WILDCARDS if (at := pattern.find(char)) >= 0), default=len(pattern))]


def _covers(rule: str, pattern: str) -> bool:
    """Return whether *rule* certainly matches every name that *pattern* matches.

    That is the case if they are equal, or if *rule* is a literal prefix and `*`, and *pattern* begins with that prefix.
    """
    prefix = rule.removesuffix(EVERY)
    is_prefix_rule = rule.endswith(EVERY) and _is_literal(prefix)
    return rule == pattern or (is_prefix_rule and _literal_prefix(pattern).startswith(prefix))


def _may_overlap(rule: str, pattern: str) -> bool:
    """Return whether *rule* and *pattern*, which has a wildcard, may match the same name."""
    if _is_literal(rule):
        return fnmatch.fnmatchcase(rule, pattern)
    ours, theirs = _literal_prefix(rule), _literal_prefix(pattern)
    return ours.startswith(theirs) or theirs.startswith(ours)


def read(path: str) -> Access:
    """Read the rules of the file at *path*. Raise `CairnError` with place, reason and remedy."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error, "name a readable file of access rules") from error
    refuse_exposed(path, path, is_secret=False)
    if len(data) > MAX_FILE_BYTES:
        raise CairnError(path, f"it is longer than {MAX_FILE_BYTES >> 20} MiB", "those are no access rules")
    return parse(data, path)


def parse(data: bytes, path: str) -> Access:
    """Parse the rules in *data*; *path* is for errors."""
    try:
        top = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CairnError(path, f"invalid TOML: {error}", _REMEDY) from error
    place = path
    try:
        _only(top, "groups", "rules", "quotas")
        groups: dict[str, list[str]] = {}
        for name, members in _table(top.get("groups", {})).items():
            place = f"{path}, group {name!r}"
            groups[name] = _strings(members)
        rules = []
        for number, rule in enumerate(_list(top, "rules"), 1):
            place = f"{path}, rule {number}"
            rules.append(_rule(_table(rule), groups))
        quotas = []
        place = path
        for number, quota in enumerate(_list(top, "quotas"), 1):
            place = f"{path}, quota {number}"
            table = _table(quota)
            quotas.append((_users(table, groups), limits_of(table)))
    except ValueError as error:
        raise CairnError(place, str(error), _REMEDY) from error
    return Access(tuple(rules), Quotas(tuple(quotas)))


def _rule(table: dict[str, Any], groups: dict[str, list[str]]) -> _Rule:
    _only(table, "who", "may", "may_not", "on")
    if ("may" in table) == ("may_not" in table):
        raise ValueError("a rule has `may` or `may_not`, and not both")
    who = _users(table, groups)
    allowed = "may" in table
    operations = set(_strings(table["may" if allowed else "may_not"]))
    if EVERY in operations:
        operations = set(OPERATIONS)
    if unknown := operations - set(OPERATIONS):
        raise ValueError(f"unknown operation {min(unknown)!r} (allowed: {', '.join(OPERATIONS)})")
    names: re.Pattern[str] | None = None
    patterns: tuple[str, ...] = ()
    if "on" in table:
        patterns = tuple(_strings(table["on"]))
        names = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
    return _Rule(who, frozenset(operations), allowed, names, patterns)


def _users(table: dict[str, Any], groups: dict[str, list[str]]) -> frozenset[str]:
    """Return the names that `who` lists, with the members of its groups."""
    who: set[str] = set()
    for name in _strings(table.get("who")):
        if not name.startswith(_GROUP):
            who.add(canonical_name(name))
        elif name.removeprefix(_GROUP) in groups:
            who.update(map(canonical_name, groups[name.removeprefix(_GROUP)]))
        else:
            raise ValueError(f"there is no group {name.removeprefix(_GROUP)!r}")
    return frozenset(who)


def _only(table: dict[str, Any], *known: str) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {key!r} (allowed: {', '.join(known)})")


def _list(top: dict[str, Any], name: str) -> list[Any]:
    listed = top.get(name, [])
    if not isinstance(listed, list):
        raise ValueError(f"{name} are a list: begin each with [[{name}]]")
    return listed


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a table is expected")
    return value


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise ValueError("a list of strings is expected, with at least one in it, for `who`, `may` and `on`")
    return value
