"""Checks control messages: JSON with a field `what`, and other fields that depend on it.

All members apply a delivered event alike, so an event that fails halfway would end all of them. `flaw` checks before
that whether each field exists and has its type. The meaning of a field is not known here.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, ValidationError, convert, defstruct

from ..group.member_id import MemberId

About = dict[str, Any]
"""The fields of a control message."""


class ControlMessage(NamedTuple):
    """A control message that was delivered."""

    sender: MemberId
    position: int
    """The position of its event in the order."""
    about: About


_Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Latin = Annotated[str, Meta(pattern=r"\A[\x00-\xff]*\Z")]
_Host = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"\A[ -~]*\Z")]
_Port = Annotated[int, Meta(gt=0, lt=1 << 16)]
_Member = tuple[_Number, _Number, _Number]
_Places = list[tuple[_Host, _Port]]
_Pairs = list[tuple[_Number, _Number]]
_Batches = list[tuple[_Member, _Number]]
_CHANGES: dict[str, dict[str, Any]] = {
    "queue": {"name": str, "arguments": dict},
    "exchange": {"name": str, "type": str, "arguments": dict},
    "template": {"name": str, "arguments": dict},
    "no-template": {"name": str},
    "new-arguments": {"queue": str, "changes": dict},
    "no-queue": {"name": str, "why": str},
    "no-exchange": {"name": str, "why": str},
    "binding": {"exchange": str, "queue": str, "key": str, "arguments": dict},
    "no-binding": {"exchange": str, "queue": str, "key": str},
}
_Change: Any = reduce(or_, (defstruct(do, [*of.items()], tag_field="do", tag=do) for do, of in _CHANGES.items()))
_Standing: Any = defstruct(
    "Standing", [("synced", bool), ("epoch", _Number), ("view", _Number), ("position", _Number)],
    forbid_unknown_fields=True,
)  # fmt: skip
_TOLD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "alive": {},
    "synced": {},
    "state": {"view": _Number, "standing": _Standing, "cluster": str, "empty": bool, "clock_us": _Number},
    "follow": {"to": _Member, "cluster": str, "epoch": _Number, "clock_us": _Number},
    "sync": {
        "wish": _Number, "queues": dict[str, _Number] | None, "kept": list[str], "heard": _Batches | None,
    },
    "snapshot": {
        "to": _Member, "update": _Number, "epoch": _Number, "wiring": list[_Change], "synced": list[_Member],
        "floors": _Batches,
        "queues": list[tuple[
            str, _Number, _Number, _Member | None, list[_Member], list[tuple[_Number, _Member]],
            tuple[_Number, list[_Number]],
        ]],
        "past": _Number, "messages": _Number, "remembered": dict[str, list[_Latin]], "lines": dict[str, str],
        "heard": _Batches, "knows": bool,
    },
    "lacking": {"update": _Number, "queue": str, "number": _Number, "positions": list[_Number]},
    "update-done": {"to": _Member, "update": _Number, "queue": str},
    "change": {"change": _Change},
    "consume": {"queue": str, "first": _Number},
    "taken": {"queue": str},
    "cancel": {"queue": str, "first": _Number, "acquired": _Pairs},
    "release-queue": {"queue": str, "first": _Number, "acquired": _Pairs},
    "purge-wish": {"queue": str, "by": list[_Number], "number": _Number},
    "purge": {"queue": str, "by": list[_Number], "number": _Number, "keep": list[_Number]},
    "followed": {"queue": str, "line": str, "number": _Number},
    "flow": {"off": bool},
    "address": {"plain": _Places, "tls": _Places},
    "report-wish": {"by": list[_Number], "number": _Number, "asked": dict},
    "report": {"to": list[_Number], "number": _Number, "told": dict},
}  # fmt: skip
"""The types of the fields of each control message."""


def flaw(about: Any) -> str:
    """Describes the flaw of a control message; empty if it has none."""
    if not isinstance(about, dict) or not isinstance(what := about.get("what"), str):
        return "it has no `what`"
    wanted = _TOLD.get(what)
    if wanted is None:
        return f"unknown control message {what!r}: check that all members run the same version"
    wrong = next((name for name, kind in wanted.items() if name not in about or not _fits(about[name], kind)), None)
    return "" if wrong is None else f"{what} has no valid {wrong}"


def _fits(value: Any, kind: Any) -> bool:
    try:
        convert(value, kind)
    except ValidationError:
        return False
    return True
