"""Tests of `compare` on the stores of cluster members, after kills, partitions and power cuts.

After a run, the members contain the same messages, as the simulation checks, but with different LSNs and partly in
another order, as a state transfer stores messages from the tail of a queue to its head. `compare` reports exactly the
messages that are then changed in one of the stores outside the cluster.
"""

from __future__ import annotations

import shutil
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cairnmq.analytics.jobs.job_run import answer, job_named
from cairnmq.analytics.jobs.views import Views, ViewsRequest
from cairnmq.store.embedded.library import open_store
from tests.harness.cluster.cluster_harness import SimulatedMember
from tests.harness.cluster.simulation import Simulation
from tests.harness.columns.logs import lay_out

Held = dict[str, list[bytes]]


def laid_out(member: SimulatedMember, path: Path) -> Path:
    """Write the store of a member to the directory *path*."""
    member.store.kick()
    member.store.journal.writer.write_mark()
    lay_out(member.files, path)
    wiring = member.wiring.hold()
    assert isinstance(wiring, bytes)
    (path / "wiring.sqlite").write_bytes(wiring)
    return path


def held(store: Path) -> Held:
    """Return the contents of each queue from head to tail, in the delivery order of the opened store."""
    copy = shutil.copytree(store, store.with_name(f"{store.name}-emptied"))
    found: Held = {}
    with open_store(str(copy)) as opened:
        for queue in sorted(opened.queues(), key=attrgetter("name")):
            if not queue.name.startswith("$"):
                contents = found[queue.name] = []
                while (message := queue.take()) is not None:
                    contents.append(message.content)
                    message.accept()
    return found


def differences(here: Held, there: Held) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for name in here:
        sides: list[dict[int, bytes]] = []
        for own, other in ((here[name], list(there[name])), (there[name], list(here[name]))):
            side = {}
            for place, content in enumerate(own):
                if content in other:
                    other.remove(content)
                else:
                    side[place] = content
            sides.append(side)
        for place in sorted(sides[0].keys() | sides[1].keys()):
            one, two = (side.get(place) for side in sides)
            what = "only there" if one is None else "only here" if two is None else "different content"
            found.append((name, place, what, *_told(one), *_told(two)))
    return found


def _told(content: bytes | None) -> tuple[int | None, str | None]:
    return (None, None) if content is None else (len(content), sha256(content).hexdigest())


def compare(spark: SparkSession, here: Path, there: Path) -> list[tuple[object, ...]]:
    views = Views(spark, str(here), ViewsRequest(other=str(there)))
    try:
        rows: list[dict[str, Any]] = answer(job_named("compare"), views).to_pylist()
    finally:
        views.close()
    names = ("queue", "place", "what", "here_bytes", "here_sha256", "there_bytes", "there_sha256")
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize("seed", [13])
def test_members_after_a_life(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    simulation = Simulation(seed, steps=150)
    simulation.run()
    here, there = (laid_out(simulation.harness[node], tmp_path / f"member-{node}") for node in (1, 2))
    first, second = held(here), held(there)
    assert simulation.met["kill"]
    assert sum(map(len, first.values())) > 100
    assert first != second, "both have the same order"
    assert differences(first, second) == []
    assert compare(spark, here, there) == []
    changed = Path(shutil.copytree(there, tmp_path / "changed"))
    with open_store(str(changed)) as store:
        queue = store.queue("q")
        for _ in range(3):
            message = queue.take()
            assert message is not None
            message.accept().result()
        queue.put(b"behind their backs").result()
        queue.put(second["q"][10]).result()
        store.queue("r").put(first["q"][0]).result()
    rows = compare(spark, here, changed)
    assert rows == differences(first, held(changed))
    assert {row[0] for row in rows} == {"q", "r"}


def test_copies_of_a_store_are_compared_by_position(spark: SparkSession, tmp_path: Path) -> None:
    """Copies of one store are compared by position, so different contents at a position of a queue are reported."""
    here, there = tmp_path / "here", tmp_path / "there"
    with open_store(str(here)) as store:
        store.queue("q").put_all([b"a", b"b"]).result()
    shutil.copytree(here, there)
    for path, last in ((here, b"c"), (there, b"d")):
        with open_store(str(path)) as store:
            store.queue("q").put_all([last, b"e"]).result()
    found = compare(spark, here, there)
    assert [(row[0], *row[2:]) for row in found] == [("q", "different content", *_told(b"c"), *_told(b"d"))]
