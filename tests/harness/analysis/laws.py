"""Properties of the rows that jobs return for a journal, given the notes of its clients."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

from tests.analysis.clients import SMALL, Notes, Stay

HOUR, MINUTE = 3_600_000_000, 60_000_000
Rows = list[dict[str, Any]]
Ask = Callable[[str], Rows]
"""The type of a function that returns the rows of a job by its name."""


def at(us: int) -> datetime:
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)


def by_queue(clients: Notes) -> dict[str, list[Stay]]:
    return {queue: clients.on(queue) for queue in sorted(clients.ids)}


def rank(values: list[int], share: float) -> int:
    """Return the nearest-rank percentile of *values*."""
    return sorted(values)[max(ceil(share * len(values)), 1) - 1]


def integrity(world: Notes, ask: Ask) -> None:
    """Check that `integrity` reports nothing for a complete journal."""
    assert ask("integrity") == []


def depth(world: Notes, ask: Ask) -> None:
    rows = ask("depth")
    assert all(row["exact"] for row in rows)
    depths(world, rows)


def depths(world: Notes, rows: Rows) -> None:
    found = defaultdict(list)
    for row in rows:
        found[row["queue"]].append((row["time"], row["arrived"], row["left"], row["depth"], row["peak"]))
    for queue, stays in by_queue(world).items():
        assert found[queue] == expected_depth(stays)
        assert found[queue][-1][3] == sum(stay.end_us is None for stay in stays)


def expected_depth(stays: list[Stay]) -> list[tuple[datetime, int, int, int, int]]:
    """Return the rows of `depth` for a queue: per minute, its time, arrivals, departures, last depth and peak."""
    steps = [(stay.time_us, 1) for stay in stays] + [(stay.end_us, -1) for stay in stays if stay.end_us is not None]
    moments: dict[int, list[int]] = defaultdict(list)
    for time_us, step in steps:
        moments[time_us].append(step)
    buckets: dict[int, list[list[int]]] = defaultdict(list)
    for time_us, inside in sorted(moments.items()):
        buckets[time_us - time_us % MINUTE].append(inside)
    rows, depth = [], 0
    for bucket, some in sorted(buckets.items()):
        depths = [depth]
        for inside in some:
            depths.append(depths[-1] + sum(inside))
        depth = depths[-1]
        every = [step for inside in some for step in inside]
        rows.append((at(bucket), every.count(1), every.count(-1), depth, max(depths)))
    return rows


def lifetimes(world: Notes, ask: Ask) -> None:
    expected = {}
    for queue, stays in by_queue(world).items():
        hours = defaultdict(list)
        for stay in stays:
            if stay.end_us is not None and stay.how == "dequeued":
                hours[stay.end_us - stay.end_us % HOUR].append(stay.end_us - stay.time_us)
        for hour, lives in hours.items():
            ranks = (rank(lives, 0.5), rank(lives, 0.9), rank(lives, 0.99), max(lives))
            expected[queue, at(hour)] = len(lives), *ranks
    found = {
        (row["queue"], row["hour"]): (row["messages"], row["p50_us"], row["p90_us"], row["p99_us"], row["max_us"])
        for row in ask("lifetimes")
    }
    assert found == expected


def throughput(world: Notes, ask: Ask) -> None:
    expected: Counter[tuple[str, datetime, str]] = Counter()
    for stay in world.stays:
        came = stay.time_us - stay.time_us % MINUTE
        expected[stay.queue, at(came), "arrived"] += 1
        expected[stay.queue, at(came), "arrived_bytes"] += stay.size
        if stay.end_us is not None:
            went = stay.end_us - stay.end_us % MINUTE
            expected[stay.queue, at(went), "left"] += 1
            expected[stay.queue, at(went), "left_bytes"] += stay.size
    names = ("arrived", "arrived_bytes", "left", "left_bytes")
    found = Counter({(row["queue"], row["time"], name): row[name] for row in ask("throughput") for name in names})
    assert +found == +expected


def fan_out(world: Notes, ask: Ask) -> None:
    queues: dict[int, set[str]] = {message_id: set() for message_id in world.contents}
    for stay in world.stays:
        queues[stay.message_id].add(stay.queue)
    found = {row["queues"]: row for row in ask("fan-out")}
    assert found.keys() == {len(on) for on in queues.values()}
    for number in found:
        sizes = [len(world.contents[one]) for one, on in queues.items() if len(on) == number]
        assert (found[number]["messages"], found[number]["bytes"]) == (len(sizes), sum(sizes))
        assert found[number]["saved_bytes"] == max(number - 1, 0) * sum(sizes)


def backlog(world: Notes, ask: Ask) -> None:
    found = {row["queue"]: row for row in ask("backlog")}
    assert found.keys() == {queue for queue in world.ids if world.living(queue)}
    for queue, row in found.items():
        stays = world.living(queue)
        assert (row["messages"], row["bytes"]) == (len(stays), sum(stay.size for stay in stays))
        assert (row["oldest_id"], row["oldest_time"]) == (stays[0].message_id, at(stays[0].time_us))
        assert row["pinned_bytes"] == row["containers"] * SMALL >= row["alone_bytes"]


def transactions(world: Notes, ask: Ask) -> None:
    groups = defaultdict(list)
    for noted in world.transactions:
        groups[noted.kind, at(noted.began_us - noted.began_us % HOUR)].append(noted)
    found = {(row["kind"], row["hour"]): row for row in ask("transactions")}
    assert found.keys() == groups.keys()
    for key, some in groups.items():
        row, states = found[key], Counter(noted.state for noted in some)
        assert row["transactions"] == len(some)
        assert (row["committed"], row["rolled_back"]) == (states["committed"], states["rolled back"])
        assert (row["prepared"], row["open"], row["forgotten"]) == (states["prepared"], 0, states["forgotten"])
        assert row["operations"] == sum(noted.enqueues + noted.dequeues for noted in some)
        assert row["bytes"] == sum(noted.size for noted in some)
        took = [noted.end_us - noted.began_us for noted in some if noted.end_us is not None]
        if key[0] == "local":  # A4: written together at commit, never after a rollback
            assert (row["p50_us"], row["p99_us"], row["max_us"], row["abort_rate"]) == (None, None, None, None)
        elif took:
            assert (row["p50_us"], row["p99_us"], row["max_us"]) == (rank(took, 0.5), rank(took, 0.99), max(took))
            assert row["abort_rate"] == states["rolled back"] / (states["committed"] + states["rolled back"])


def in_doubt(world: Notes, ask: Ask) -> None:
    rows = ask("in-doubt")
    expected = sorted(
        (noted.prepared_us, noted.xid.hex(), noted.enqueues, noted.dequeues, noted.size)
        for noted in world.prepared()
    )
    found = [(row["prepared_time"], row["xid"] or "", row["enqueues"], row["dequeues"], row["bytes"]) for row in rows]
    assert found == [(at(time_us), *rest) for time_us, *rest in expected]


def expiry(world: Notes, ask: Ask) -> None:
    expected: Counter[tuple[str, datetime, str]] = Counter()
    for stay in world.stays:
        if stay.end_us is not None and stay.reason != "accepted":
            expected[stay.queue, at(stay.end_us - stay.end_us % HOUR), stay.reason or stay.how] += 1
    rows = ask("expiry")
    found = {(row["queue"], row["hour"], row["reason"]): row["messages"] for row in rows}
    assert found == expected
    assert not [row for row in rows if row["to_queues"]]


def redeliveries(world: Notes, ask: Ask) -> None:
    rows = ask("redeliveries")
    assert {row["queue"] for row in rows} == {stay.queue for stay in world.stays}
    for row in rows:
        stays = world.on(row["queue"])
        assert row["messages"] == len(stays)
        assert row["failed_too_often"] == sum(stay.reason == "delivery-limit" for stay in stays)
        assert sum(stay.lives > 1 for stay in stays) <= row["over_recoveries"] <= row["messages"]


def by_name(world: Notes) -> dict[str, list[int]]:
    """Return the IDs of messages with an AMQP message-id, by message-id, in order of arrival."""
    found = defaultdict(list)
    for message_id, content in sorted(world.contents.items()):
        if content in world.named:
            found[world.named[content]].append(message_id)
    return found


def duplicates(world: Notes, ask: Ask) -> None:
    first: dict[int, str] = {}
    for stay in world.stays:
        first.setdefault(stay.message_id, stay.queue)
    expected = []
    for name, made in by_name(world).items():
        some = [message_id for message_id in made if message_id in first]
        if len(some) > 1:
            times = [world.stored_us[one] for one in some]
            queues, contents = {first[one] for one in some}, {world.contents[one] for one in some}
            expected.append((name, len(some), some, sorted(queues), len(contents), at(min(times)), at(max(times))))
    names = ("amqp_message_id", "messages", "message_ids", "queues", "contents", "first_time", "last_time")
    rows = [row | {"queues": named(world, row["queues"])} for row in ask("duplicates")]
    found = [tuple(row[name] for name in names) for row in rows]
    assert found == sorted(expected, key=lambda row: (-row[1], row[0]))


def named(world: Notes, queues: list[str]) -> list[str]:
    """Replace `queue-ID`, which jobs return for archives and in-memory disks, with queue names; return them sorted."""
    names = {f"$queue-{number}": name for name, number in world.ids.items()}
    return sorted(names.get(queue, queue) for queue in queues)


def write_log(world: Notes, path: Path) -> str:
    """Write a producer's log that omits every fourth message, and lists some twice and some that never arrived.

    The format is JSON lines if the file name ends with `.jsonl`, else CSV. Returns the path.
    """
    arrived = [world.named[content] for content in world.contents.values() if content in world.named]
    world.sent = [name for number, name in enumerate(arrived) if number % 4] + ["lost", 'lo"st', "lost"]
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps({"at": 1, "message_id": name}) + "\n" for name in world.sent)
        else:
            csv.writer(file).writerows([("at", "message_id", "said"), *((1, name, 'x,"y"\n') for name in world.sent)])
    return str(path)


def trace_join(world: Notes, ask: Ask) -> None:
    made, stays = by_name(world), defaultdict(list)
    for stay in world.stays:
        stays[stay.message_id].append(stay)
    in_doubt = {message for work in world.work.values() for what, message, *_ in work if what == "put"}
    expected = {}
    for name, times in Counter(world.sent).items():
        some = made.get(name, [])
        queued = {one for one in some if any(stay.end_us is None for stay in stays[one])}
        removed = [one for one in some if one not in queued | in_doubt | world.staged]
        status = (
            "queued" if queued else "in doubt" if in_doubt & {*some} else "staged" if len(removed) < len(some)
            else "removed" if some else "never arrived"
        )  # fmt: skip
        queues = {
            stay.queue for one in some for stay in stays[one] if one not in queued or stay.end_us is None
        }
        came, ends = [world.stored_us[one] for one in some], [_end(world, stays[one], one) for one in removed]
        expected[name] = (
            times, len(some), status, sorted(queues), some, at(min(came)) if came else None,
            max((at(end_us) for end_us, *_ in ends if end_us), default=None), sorted({reason for _, reason, _ in ends}),
            sorted({cause for *_, cause in ends if cause}),
        )  # fmt: skip
    names = (
        "sent", "arrived", "status", "queues", "message_ids", "first_time", "end_time", "end_reasons",
        "dequeue_reasons",
    )  # fmt: skip
    rows = [row | {"queues": named(world, row["queues"])} for row in ask("trace-join")]
    found = {row["message_id"]: tuple(row[name] for name in names) for row in rows}
    assert found == expected
    assert [row["message_id"] for row in rows] == sorted(expected, key=lambda name: (expected[name][1] > 0, name))


def _end(world: Notes, stays: list[Stay], message_id: int) -> tuple[int, str, str]:
    """Return the time, kind and reason of a message's end; the time is 0 if it is unknown."""
    if not stays:
        return world.ended[message_id]
    last = max(stays, key=lambda stay: stay.end_us or 0)
    assert last.end_us is not None
    return last.end_us, {"dequeued": "consumed"}.get(last.how, last.how), last.reason


LAWS = (
    integrity, depth, lifetimes, throughput, fan_out, backlog, transactions, in_doubt, expiry, redeliveries,
    duplicates, trace_join,
)  # fmt: skip
