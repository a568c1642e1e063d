"""A QUERY about all members of a cluster (D54): each returns its own rows, which the answer marks with the member.

A page of it is a page of each member: `next` is the start of the next page of each. Members that did not answer in time
are named. The access rules of the member that received the query apply.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import partial

from ...amqp.codec import decode, encode
from ...broker.nodes.replication_port import Gathered, Members, Report
from ..protocol.call import Call
from ..protocol.entity import Type
from ..protocol.request import BAD_REQUEST, NOT_FOUND, Refusal, number

PAGE_ROWS = 500
"""The rows of each member in one answer."""
LIMIT_MS = 2000
MOST_LIMIT_MS = 60_000
NO_MEMBER = "this broker is not a member of a cluster (start it with --cluster-name)"


def reporter(types: Mapping[str, Type]) -> Callable[[Report], Report]:
    """Return the function that answers a report request from another member."""

    def report(asked: Report) -> Report:
        kind = types.get(asked["type"])
        if kind is None:  # a member of another version may know it
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


def query(
    members: Members, call: Call, types: Mapping[str, Type], names: list[str], offset: int, most: int, *, internal: bool
) -> None:
    """Ask all members. Raises `Refusal`."""
    if not members.shares_queues:
        raise Refusal(NOT_FOUND, NO_MEMBER)
    if len(types) != 1:
        raise Refusal(BAD_REQUEST, "with the scope cluster a QUERY is about one type: name it as entityType")
    limit_ms = number(call.request.properties, "timeout-ms", LIMIT_MS, MOST_LIMIT_MS)
    count = min(most, PAGE_ROWS)
    asked = {"type": next(iter(types)), "names": names, "offset": offset, "count": count, "internal": internal}
    kind = next(iter(types.values()))
    members.gather(asked, limit_ms / 1000, call.then(partial(_answer, call, kind, names, offset + count)))


def _answer(call: Call, kind: Type, names: list[str], after: int, gathered: Gathered) -> None:
    rows: list[bytes] = []
    more = False
    for member, reported in sorted(gathered.answers.items()):
        more = more or bool(reported.get("more"))
        for resource, row in reported.get("rows", ()):
            if kind.may_monitor(call, resource):
                values = decode.value(base64.b64decode(row), 0)[0]
                rows.append(encode.value([member, *values]))
    following = after if more else None
    call.answer_rows(["member", *names], rows, following, silent=gathered.silent, missing=gathered.missing)
