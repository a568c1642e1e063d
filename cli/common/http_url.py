"""A URL of an HTTP server as the value of an option."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import click

from ...base.errors import InvalidOption


class HttpUrl(click.ParamType):
    """A URL with the scheme http or https and a host. Errors do not repeat it, as it may contain credentials."""

    name = "url"

    def __init__(self, example: str) -> None:
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        reason = _why_invalid(text)
        if reason:
            place = param.opts[0] if param is not None else self.name
            raise InvalidOption(place, reason, f"give a URL such as {self._example}")
        return text


def _why_invalid(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "invalid URL"
    if parts.scheme not in ("http", "https"):
        return f"invalid URL: the scheme is {parts.scheme!r}" if parts.scheme else "invalid URL without a scheme"
    return None if is_complete else "invalid URL without a host"
