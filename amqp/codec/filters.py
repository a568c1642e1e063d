"""The filter set of a source: an encoded map from names, which are the client's choice, to described values.

| filter | descriptor, as a symbol | as a ulong | value |
|---|---|---|---|
| selector | apache.org:selector-filter:string | 0x0000468C00000004 | a string |
| no-local | apache.org:no-local-filter:list | 0x0000468C00000003 | an empty list |

The answer to an attach names the filters that are applied, as they came: by that a client knows.
"""

from __future__ import annotations

from typing import NamedTuple

from . import decode, encode
from .primitives import Malformed
from .types import Described

_SELECTOR = ("apache.org:selector-filter:string", 0x0000468C00000004)
_NO_LOCAL = ("apache.org:no-local-filter:list", 0x0000468C00000003)


class Filters(NamedTuple):
    """The filters that a client requests."""

    selector: str | None = None
    """None also for an empty selector, which matches every message."""
    no_local: bool = False
    """Messages that the same connection sent are excluded."""
    others: tuple[str, ...] = ()
    """The client's names of unsupported filters."""
    selector_entry: bytes = b""
    """The encoded entry of the map, key and value."""
    no_local_entry: bytes = b""


NO_FILTERS = Filters()


def parse(encoded: bytes) -> Filters:
    """The filters of an encoded map; of a null, or of nothing, there are none. Raises `Malformed`."""
    if encoded in (b"", encode.NULL):
        return NO_FILTERS
    found = NO_FILTERS
    decode.read_map(encoded, 0)  # whole and in order, before its entries are looked at
    for key, name, raw in decode.raw_entries(encoded, 0):
        if name is None:
            raise Malformed("a filter's name is not a symbol")
        filtered = decode.complete(raw)
        kind = filtered.descriptor if isinstance(filtered, Described) else None
        if kind in _SELECTOR:
            if type(filtered.value) is not str:
                raise Malformed("a selector is not a string")
            if found.selector_entry:
                raise Malformed("there are two selectors")
            selector = filtered.value if filtered.value.strip() else None
            found = found._replace(selector=selector, selector_entry=key + raw)
        elif kind in _NO_LOCAL:
            found = found._replace(no_local=True, no_local_entry=key + raw)
        else:
            found = found._replace(others=(*found.others, name.decode("ascii")))
    return found


def accepted(filters: Filters, *, no_local: bool = False) -> bytes:
    """The encoded map of the filters that are applied: a selector always, *no_local* if so; empty if there are none."""
    entries = [filters.selector_entry, filters.no_local_entry if no_local else b""]
    applied = [entry for entry in entries if entry]
    return encode.mapped_entries(applied) if applied else b""
