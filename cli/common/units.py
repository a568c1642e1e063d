"""Values of options: sizes and durations (64M, 64MiB, 2GB, 500ms, 12h, 7d), finite numbers, addresses and URLs."""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import urlsplit

import click

from ...base.errors import InvalidOption

_SIZES = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    _SIZES |= {_prefix: 1024**_power, f"{_prefix}ib": 1024**_power, f"{_prefix}b": 1000**_power}
_TIMES = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Size(click.ParamType[int]):
    """A size with a unit, converted to bytes."""

    name = "size"

    def __init__(self, remedy: str, least: int = 1) -> None:
        self._remedy = remedy
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,18}) ?([a-z]{0,3})", str(value).lower(), re.ASCII)
        if found is None or found[2] not in _SIZES or int(found[1]) < self._least:
            raise InvalidOption(_place(self.name, value, param), "invalid size", self._remedy)
        return int(found[1]) * _SIZES[found[2]]


def _place(kind: str, value: object, param: click.Parameter | None) -> str:
    names = [kind] if param is None else param.opts
    return f"{next((name for name in names if name.startswith('--')), names[0])} {value}"


_A_SIZE = "give bytes, or a number with a unit, like 512K, 64MiB or 1GB (K and KiB are 1024 bytes, KB is 1000)"
SIZE = Size(_A_SIZE)
SIZE_OR_NONE = Size(f"{_A_SIZE}; or 0", least=0)


class Duration(click.FloatRange):
    """A duration within bounds, as seconds: a number with a unit, like 500ms, 30s, 2h or 7d; seconds without one."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?) ?([a-z]{0,2})", str(value).lower(), re.ASCII)
        if found is None or found[2] not in _TIMES:
            place = _place(self.name, value, param)
            raise InvalidOption(place, "invalid duration", "give a number with a unit, like 500ms, 30s, 2h or 7d")
        return float(super().convert(float(found[1]) * _TIMES[found[2]], param, ctx))


class Milliseconds(Duration):
    """A duration as milliseconds, which are also the unit of a number without one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        return 1000 * super().convert(text if text[-1:].isalpha() else f"{text}ms", param, ctx)


class SizeRange(click.IntRange):
    """A size within bounds; with a unit, or in bytes."""

    name = "size range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and not value.startswith("-"):
            value = SIZE_OR_NONE.convert(value, param, ctx)
        return int(super().convert(value, param, ctx))


class Finite(click.FloatRange):
    """A number within bounds; `nan` and `inf`, which Python calls floats, are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number; use one such as 0.5", param, ctx)
        return found


def host_port(option: str, text: str) -> tuple[str, int]:
    """Return HOST:PORT as a pair; an IPv6 address is enclosed in brackets."""
    host, _, port = text.rpartition(":")
    is_host = re.fullmatch(r"\[[0-9A-Fa-f:.]+(%\w+)?\]|[^\s/@:?#\[\]]+", host)
    if not is_host or not re.fullmatch(r"\d{1,5}", port, re.ASCII) or not 0 < int(port) < 65536:
        raise InvalidOption(
            f"{option} {text}", "invalid address", "give a host and a port, such as mq2.example.org:5672"
        )
    return host.strip("[]"), int(port)


class HttpUrl(click.ParamType[str]):
    """A URL with the scheme http or https and a host. Errors do not repeat it, as it may contain credentials."""

    name = "url"

    def __init__(self, example: str) -> None:
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        reason = _invalid_reason(text)
        if reason:
            place = param.opts[0] if param is not None else self.name
            raise InvalidOption(place, reason, f"give a URL such as {self._example}")
        return text


def _invalid_reason(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "invalid URL"
    if parts.scheme not in ("http", "https"):
        return f"invalid URL: the scheme is {parts.scheme!r}" if parts.scheme else "invalid URL without a scheme"
    return None if is_complete else "invalid URL without a host"
