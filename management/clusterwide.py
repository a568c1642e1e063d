"""A QUERY about all members of a cluster (D54): each tells of its own, and the answer says which one told what.

A page of it is a page of each member: `next` is where all of them go on. Who did not answer in time is named. Access
rules are those of the member that was asked.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import partial

from ..amqp import decode, encode
from ..broker.access import LOOK
from ..broker.cluster import Gathered, Report
from .call import Call
from .entity import Type
from .request import BAD_REQUEST, NOT_FOUND, Refusal, number

PAGE_ROWS = 500
"""Of each member, in one answer."""
LIMIT_MS = 2000
MOST_LIMIT_MS = 60_000


def reporter(types: Mapping[str, Type]) -> Callable[[Report], Report]:
    """What this member answers when another one asks."""

    def report(asked: Report) -> Report:
        kind = types.get(asked["type"])
        if kind is None:  # one of another version knows it
            return {"rows": [], "more": False}
        there = [one for one in kind.all() if asked["internal"] or not kind.is_internal(one)]
        page = there[asked["offset"] : asked["offset"] + asked["count"]]
        return {
            "rows": [
                [kind.resource_of(one), base64.b64encode(kind.row_of(one, asked["names"])).decode()]
                for one in page
                if kind.is_there(one)
            ],
            "more": asked["offset"] + len(page) < len(there),
        }

    return report


def query(call: Call, types: Mapping[str, Type], names: list[str], offset: int, most: int, *, internal: bool) -> None:
    """Ask all members. Raises `Refusal`."""
    cluster = call.node.broker.cluster
    if cluster is None:
        raise Refusal(NOT_FOUND, "this broker is no member of a cluster")
    if len(types) != 1:
        raise Refusal(BAD_REQUEST, "with the scope cluster a QUERY is about one type: name it as entityType")
    limit_ms = number(call.request.properties, "timeout-ms", LIMIT_MS, MOST_LIMIT_MS)
    count = min(most, PAGE_ROWS)
    asked = {"type": next(iter(types)), "names": names, "offset": offset, "count": count, "internal": internal}
    cluster.gather(asked, limit_ms / 1000, call.then(partial(_answer, call, names, offset + count)))


def _answer(call: Call, names: list[str], after: int, gathered: Gathered) -> None:
    rows: list[bytes] = []
    more = False
    for member, told in sorted(gathered.answers.items()):
        more = more or bool(told.get("more"))
        for resource, row in told.get("rows", ()):
            if not call.why_not(LOOK, resource):
                values = decode.value(base64.b64decode(row), 0)[0]
                rows.append(encode.value([member, *values]))
    parts = (
        encode.string("attributeNames"),
        encode.value(["member", *names]),
        encode.string("results"),
        encode.listed(rows),
        encode.string("count"),
        encode.value(len(rows)),
        encode.string("next"),
        encode.value(after if more else None),
        encode.string("silent"),
        encode.value(gathered.silent),
        encode.string("missing"),
        encode.value(gathered.missing),
    )
    call.answer_encoded(encode.mapped(parts))
