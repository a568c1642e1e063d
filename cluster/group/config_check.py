"""Compares the configuration that all members of a cluster must share; a member that differs is not admitted.

Each hello carries the configuration as a text: JSON with the version of the events, and with the options that would
make members interpret an address differently. Members compare the texts and look for the difference only to report it.
The hello itself carries the configured number of members.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

LONGEST = 200
"""The maximum number of characters of a value in the text; a longer value is replaced by its beginning and a digest."""
REMEDY = "give all members the same version of CairnMQ and the same options, and start this broker again"


def agreement(cluster: str, version: int, options: Mapping[str, Sequence[str]]) -> str:
    """Returns the text that a hello carries.

    *version*: of the events that members exchange; *options*: by their names on the command line.
    """
    said = {"cluster": cluster, "version of events": str(version)}
    said |= {name: " ".join(sorted(values)) for name, values in options.items()}
    text = json.dumps({name: _short(value) for name, value in said.items()}, sort_keys=True, ensure_ascii=False)
    return text.encode(errors="replace").decode()  # command-line arguments need not be valid UTF-8


def difference(theirs: str, mine: str, node: int) -> str:
    """Describes how the text of another member differs from that of *node*, this one; empty if it does not."""
    if theirs == mine:
        return ""
    they, we = _read(theirs), _read(mine)
    found = [
        f"its {name} is {they.get(name, '')!r}, on node {node} it is {we.get(name, '')!r}"
        for name in sorted(they.keys() | we.keys())
        if they.get(name) != we.get(name)
    ]
    return "; ".join(found)[: 4 * LONGEST] or "its version and options are encoded differently"


def _short(value: str) -> str:
    if len(value) <= LONGEST:
        return value
    return f"{value[: LONGEST // 2]}... {blake2b(value.encode(), digest_size=8).hexdigest()}"


def _read(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
