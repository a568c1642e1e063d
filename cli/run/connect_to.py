"""`--connect-to` of `cairnmq broker`: passwords in its URLs don't stay where others can read them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from ...base.errors import CairnError
from ...broker_plugin.options import AutoLink, Target, parse_auto_link, parse_target

_ARG_START, _ARG_END = 48, 49
"""Fields of /proc/self/stat."""


def targets_of(urls: Sequence[str], password_file: str) -> list[Target]:
    """Return the targets of *urls*, and hide the passwords of the URLs. Raises `CairnError`."""
    for url in urls:
        with suppress(ValueError):
            _hide(urlsplit(url).password)
    return [parse_target(url, password_file=password_file) for url in urls]


def auto_links_of(texts: Sequence[str], targets: Sequence[Target]) -> list[AutoLink]:
    """Parses `--auto-link`. Raises `CairnError`."""
    links = [parse_auto_link(text) for text in texts]
    names = {target.name for target in targets}
    for link in links:
        if f"{link.connector}:{link.external}" in names:  # by default it is called host:port
            raise CairnError(
                f"--auto-link {link.name}", f"a connector's name with a colon, {link.connector}:{link.external}, "
                "is ambiguous with an address", "give it one with name= in --connect-to",
            )  # fmt: skip
    return links


def _hide(secret: str | None) -> None:
    """Remove a password from the command line that `ps` shows. It was visible for a short time: prefer a file."""
    if not secret:
        return
    try:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, end = (int(fields[number - 3]) for number in (_ARG_START, _ARG_END))
    except (OSError, ValueError, IndexError):
        return
    line, wanted = ctypes.string_at(start, end - start), secret.encode()
    at = line.find(wanted)
    while at >= 0:
        ctypes.memset(start + at, ord("*"), len(wanted))
        at = line.find(wanted, at + 1)
