"""Checks control messages: JSON with a field `what`, and other fields that depend on it.

All members apply a delivered event alike, so an event that fails halfway would end all of them. `flaw` checks before
that whether each field exists and has its type. The meaning of a field is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..group.member_id import MemberId

About = dict[str, Any]
"""The fields of a control message."""
Check = Callable[[Any], bool]


class ControlMessage(NamedTuple):
    """A control message that was delivered."""

    sender: MemberId
    position: int
    """The position of its event in the order."""
    about: About


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _map(value: Any) -> bool:
    return isinstance(value, dict)


def _many(one: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(one, value))


def _row(*checks: Check) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(checks)
        and all(check(one) for check, one in zip(checks, value, strict=True))
    )


def _or_none(one: Check) -> Check:
    return lambda value: value is None or one(value)


def _fields(wanted: Mapping[str, Check]) -> Check:
    return lambda value: (
        isinstance(value, dict) and all(name in value and check(value[name]) for name, check in wanted.items())
    )


def _map_of(one: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(one, value.values()))


def _latin(value: Any) -> bool:
    return isinstance(value, str) and all(ord(one) < 256 for one in value)


def _change(value: Any) -> bool:
    return isinstance(value, dict) and _fields(_CHANGES.get(str(value.get("do")), {"do": _never}))(value)


def _host(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 253 and value.isascii() and value.isprintable()


def _port(value: Any) -> bool:
    return _number(value) and 0 < value < 1 << 16


def _never(value: Any) -> bool:
    return False


_member = _row(_number, _number, _number)
_members = _many(_member)
_places = _many(_row(_host, _port))
_held = _many(_row(_number, _member))
_batches = _many(_row(_member, _number))
_CHANGES: dict[str, dict[str, Check]] = {
    "queue": {"name": _text, "arguments": _map},
    "exchange": {"name": _text, "type": _text, "arguments": _map},
    "template": {"name": _text, "arguments": _map},
    "no-template": {"name": _text},
    "new-arguments": {"queue": _text, "changes": _map},
    "no-queue": {"name": _text, "why": _text},
    "no-exchange": {"name": _text, "why": _text},
    "binding": {"exchange": _text, "queue": _text, "key": _text, "arguments": _map},
    "no-binding": {"exchange": _text, "queue": _text, "key": _text},
}
_standing = _fields({"synced": _truth, "epoch": _number, "view": _number, "position": _number})
_TOLD: dict[str, dict[str, Check]] = {
    "nothing": {},
    "alive": {},
    "synced": {},
    "state": {"view": _number, "standing": lambda value: _standing(value) and len(value) == 4, "cluster": _text,
              "empty": _truth, "clock_us": _number},
    "follow": {"to": _member, "cluster": _text, "epoch": _number, "clock_us": _number},
    "sync": {"wish": _number, "queues": _or_none(_map_of(_number)), "kept": _many(_text), "heard": _or_none(_batches)},
    "snapshot": {
        "to": _member, "update": _number, "epoch": _number, "wiring": _many(_change), "synced": _members,
        "floors": _many(_row(_member, _number)),
        "queues": _many(_row(
            _text, _number, _number, _or_none(_member), _members, _held, _row(_number, _many(_number)),
        )),
        "past": _number, "messages": _number, "remembered": _map_of(_many(_latin)), "lines": _map_of(_text),
        "heard": _batches, "knows": _truth,
    },
    "lacking": {"update": _number, "queue": _text, "number": _number, "positions": _many(_number)},
    "update-done": {"to": _member, "update": _number, "queue": _text},
    "change": {"change": _change},
    "consume": {"queue": _text, "first": _number},
    "taken": {"queue": _text},
    "cancel": {"queue": _text, "first": _number, "acquired": _many(_row(_number, _number))},
    "release-queue": {"queue": _text, "first": _number, "acquired": _many(_row(_number, _number))},
    "purge-wish": {"queue": _text, "by": _many(_number), "number": _number},
    "purge": {"queue": _text, "by": _many(_number), "number": _number, "keep": _many(_number)},
    "followed": {"queue": _text, "line": _text, "number": _number},
    "flow": {"off": _truth},
    "address": {"plain": _places, "tls": _places},
    "report-wish": {"by": _many(_number), "number": _number, "asked": _map},
    "report": {"to": _many(_number), "number": _number, "told": _map},
}  # fmt: skip


def flaw(about: Any) -> str:
    """Describes the flaw of a control message; empty if it has none."""
    if not isinstance(about, dict) or not isinstance(what := about.get("what"), str):
        return "it has no `what`"
    wanted = _TOLD.get(what)
    if wanted is None:
        return f"unknown control message {what!r}: check that all members run the same version"
    wrong = [name for name, check in wanted.items() if name not in about or not check(about[name])]
    return f"{what} has no valid {wrong[0]}" if wrong else ""
