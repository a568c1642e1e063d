"""The definitions of a broker as a JSON document: queues, exchanges, bindings, templates and users."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...base.accounts import users as users_file
from ...base.errors import CairnError, InvalidOption
from ...base.texts import counted
from .ctl_client import ManagementClient

VERSION = 1
_REMEDY = "correct the file"
_BUILT_IN = "amq."
_Row = dict[str, Any]


class _Kind(NamedTuple):
    """A type of entity in the document."""

    entity: str
    """The entity type of management."""
    keys: Mapping[str, type]
    """The keys of a definition, with the types of their values."""
    id: tuple[str, ...]
    """The keys that identify it."""
    required: tuple[str, ...]

    def name_of(self, row: Mapping[str, Any]) -> str:
        return "/".join(str(row.get(key, "")) for key in self.id)

    def defined(self, row: Mapping[str, Any]) -> _Row:
        """Return the part of *row* that a definition has."""
        return {key: row[key] for key in self.keys if key in row}


KINDS = {
    "queues": _Kind("queue", {"name": str, "durable": bool, "arguments": dict}, ("name",), ("name",)),
    "exchanges": _Kind(
        "exchange", {"name": str, "exchange-type": str, "durable": bool, "arguments": dict}, ("name",),
        ("name", "exchange-type"),
    ),
    "bindings": _Kind(
        "binding", {"exchange": str, "queue": str, "key": str, "arguments": dict}, ("exchange", "queue", "key"),
        ("exchange", "queue"),
    ),
    "templates": _Kind("template", {"name": str, "arguments": dict}, ("name",), ("name",)),
    "users": _Kind("user", {"name": str, "verifier": str}, ("name",), ("name", "verifier")),
}  # fmt: skip
"""The lists of a document, in the order of creation."""
_DEFAULTS: _Row = {"durable": True, "arguments": {}, "key": ""}


class Definitions:
    """Definitions by their kind. Values are complete: defaults are filled in."""

    def __init__(self, rows: Mapping[str, list[_Row]]) -> None:
        self._rows = rows

    @classmethod
    def of_broker(cls, client: ManagementClient, users: str | None = None) -> Definitions:
        """Return the durable definitions of a broker; those of users from the file *users*. Raises `CairnError`."""
        found: dict[str, list[_Row]] = {}
        for plural, kind in KINDS.items():
            if plural != "users":
                rows = (row for row in client.rows(kind.entity) if _is_own(row))
                found[plural] = sorted(map(kind.defined, rows), key=kind.name_of)
        accounts = users_file.read(users).accounts if users else {}
        found["users"] = [{"name": name, "verifier": users_file.verifier(kept)} for name, kept in accounts.items()]
        return cls(found)

    @classmethod
    def of_text(cls, place: str, text: str) -> Definitions:
        """Return the definitions of a document. Raises `InvalidOption`, which names *place* and the definition."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidOption(place, f"not JSON: {error}", "name a file of `ctl definitions export`") from error
        if not isinstance(document, dict) or document.get("cairnmq-definitions") != VERSION:
            reason = f'no "cairnmq-definitions": {VERSION}'
            raise InvalidOption(place, reason, "name a file of `ctl definitions export`")
        if unknown := document.keys() - KINDS.keys() - {"cairnmq-definitions"}:
            raise InvalidOption(place, f"unknown key {min(unknown)!r}", _REMEDY)
        rows: dict[str, list[_Row]] = {}
        for plural, kind in KINDS.items():
            if not isinstance(given := document.get(plural, []), list):
                raise InvalidOption(f"{place}: {plural}", "not a list", _REMEDY)
            rows[plural] = [_checked(f"{place}: {plural}[{at}]", kind, row) for at, row in enumerate(given)]
            names = [kind.name_of(row) for row in rows[plural]]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise InvalidOption(f"{place}: {plural}", f"{twice!r} is defined twice", _REMEDY)
        return cls(rows)

    def missing(self, client: ManagementClient) -> Definitions:
        """Return the definitions that the broker lacks. Raises `CairnError` for one that it would refuse."""
        missing: dict[str, list[_Row]] = {}
        names: dict[str, set[str]] = {}
        for plural, kind in KINDS.items():
            if plural == "users":
                present = dict.fromkeys(_account_names(client)) if self._rows[plural] else {}
            else:
                present = {kind.name_of(row): _complete(kind, row) for row in client.rows(kind.entity)}
            missing[plural] = []
            for row in self._rows[plural]:
                there = present.get(name := kind.name_of(row), ...)
                if there is ...:
                    missing[plural].append(row)
                elif there is not None and not _is_same(row, there):
                    reason = f"the broker has it with other values: {_differences(there, row)}"
                    raise CairnError(f"{kind.entity} {name}", reason, "change or delete it, or correct the file")
            names[plural] = present.keys() | {kind.name_of(row) for row in self._rows[plural]}
        for row in missing["bindings"]:
            for plural, key in (("exchanges", "exchange"), ("queues", "queue")):
                if row[key] not in names[plural]:
                    place = f"binding {KINDS['bindings'].name_of(row)}"
                    raise CairnError(place, f"there is no {key} {row[key]!r}", f"define it in {plural}")
        found = Definitions(missing)
        for kind, row in found._each():
            if kind.entity in ("queue", "exchange", "template"):
                _create(client, kind, {**row, "dry-run": True})
        return found

    def create(self, client: ManagementClient) -> None:
        """Create all. Raises `CairnError`."""
        for kind, row in self._each():
            _create(client, kind, row)

    def document(self) -> _Row:
        return {"cairnmq-definitions": VERSION, **self._rows}

    def summary(self) -> str:
        """Return the numbers of definitions."""
        counts = [counted(len(rows), KINDS[plural].entity) for plural, rows in self._rows.items() if rows]
        return ", ".join(counts) or "nothing"

    def _each(self) -> Iterator[tuple[_Kind, _Row]]:
        for plural, rows in self._rows.items():
            for row in rows:
                yield KINDS[plural], row


def _is_own(row: Mapping[str, Any]) -> bool:
    return bool(row.get("durable", True)) and not ("exchange-type" in row and row["name"].startswith(_BUILT_IN))


def _complete(kind: _Kind, row: Mapping[str, Any]) -> _Row:
    return {key: row.get(key, _DEFAULTS.get(key)) for key in kind.keys}


def _checked(place: str, kind: _Kind, row: Any) -> _Row:
    """Return a definition with its defaults. Raises `InvalidOption`."""
    if not isinstance(row, dict):
        raise InvalidOption(place, "not an object", _REMEDY)
    for key, value in row.items():
        if key not in kind.keys:
            raise InvalidOption(place, f"unknown key {key!r}", f"the keys are {', '.join(kind.keys)}")
        if not isinstance(value, kind.keys[key]):
            raise InvalidOption(f"{place}: {key}", f"not a {kind.keys[key].__name__}: {value!r}", _REMEDY)
    if absent := next((key for key in kind.required if key not in row), None):
        raise InvalidOption(place, f"no {absent!r}", _REMEDY)
    if kind.entity == "user":
        try:
            users_file.account(f"{row['name']}:{row['verifier']}")
        except ValueError as error:
            raise InvalidOption(place, f"not a user: {error}", _REMEDY) from error
    return _complete(kind, row)


def _is_same(row: _Row, there: _Row) -> bool:
    return not _differences(there, row)


def _differences(there: _Row, row: _Row) -> str:
    return ", ".join(f"{key} {there[key]!r}, not {row[key]!r}" for key in row if there.get(key) != row[key])


def _account_names(client: ManagementClient) -> Iterator[str]:
    """Return the names of the accounts. Raises `CairnError` if the broker has no users file."""
    after = ""
    while names := client.ask("ACCOUNTS", "user", None, {"after": after})["names"]:
        yield from names
        after = names[-1]


def _create(client: ManagementClient, kind: _Kind, row: _Row) -> None:
    body = {key: value for key, value in row.items() if key != "name"}
    client.ask("CREATE", kind.entity, row.get("name"), body)
