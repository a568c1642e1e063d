"""Checks the configuration that all members of a cluster share, in each hello: a member that differs is not let in.

It is a text, JSON of names and values: the version of what members tell each other, and options by which one member
would take an address for something else than the others do. Members compare the texts; what differs is looked for
only to name it. How many members there are to be stands in the hello itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

LONGEST = 200
"""Characters of a value that are said; a longer one goes as its beginning and a digest."""
REMEDY = "give all members the same version of CairnMQ and the same options, and start this broker again"


def agreement(cluster: str, version: int, options: Mapping[str, Sequence[str]]) -> str:
    """Returns the text that a hello carries.

    *version*: of the events that members exchange; *options*: by their names on the command line.
    """
    said = {"cluster": cluster, "version of events": str(version)}
    said |= {name: " ".join(sorted(values)) for name, values in options.items()}
    text = json.dumps({name: _short(value) for name, value in said.items()}, sort_keys=True, ensure_ascii=False)
    return text.encode(errors="replace").decode()  # what a command line has need not be UTF-8


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
