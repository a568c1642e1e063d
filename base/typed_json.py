"""JSON decoded into types by msgspec, with errors that name the place, the value and the reason."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_AT = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_MOST_SHOWN = 100


class WrongJson(ValueError):
    """JSON that is malformed, or whose values do not have the expected types."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        """The path from the outermost object, like `queues[0].id`; empty for the complete object."""


class NoJson(WrongJson):
    """Bytes that are not JSON."""


class JsonFormat(msgspec.Struct):
    """The format number of a JSON object, which is read before the object."""

    format: int


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """The value of type *kind* that *data* is as JSON. Raises `WrongJson`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _AT.search(text)
        if found is None:
            raise WrongJson("", _reason(text)) from None
        place = found[1].lstrip(".")
        reason = _reason(text[: found.start()])
        raise WrongJson(place, f"{place} is {_value_at(data, found[1])}: {reason}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NoJson("", str(error)) from None


def _reason(text: str) -> str:
    return text[:1].lower() + text[1:]


def _value_at(data: bytes | str, path: str) -> str:
    """The value at *path*, as Python writes it and not too long."""
    value: Any = msgspec.json.decode(data)
    try:
        for key, index in _STEP.findall(path):
            value = value[int(index)] if index else value[key]
    except (KeyError, IndexError, TypeError):
        return "not valid"
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
