"""Tests that after a crash during a store's creation, the next start finds all confirmed messages."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from cairnmq.base.errors import CairnError
from cairnmq.store import open_store
from tests.harness.postgresql import Server
from tests.harness.thorough import amount

from . import recording
from .crash_states import Recorded, State, distinct
from .founding import MESSAGES, QUEUE, content_of, options_of
from .recording import Change, Kind, record

EVERY = amount("CAIRN_CREATION_EVERY", 8, 32)
"""The step between the checked states: one of this many is checked."""
SAMPLES = 1
"""The number of random power cuts at each change."""
STEP = amount("CAIRN_CREATION_STEP", 10, 20)
"""The number of changes between two kills of a creation on a server."""
Creation = tuple[str, Recorded, list[Change]]
pytestmark = pytest.mark.skipif(recording.missing_reason() is not None, reason=recording.missing_reason() or "")


def confirmed_by(marks: list[str]) -> int:
    """Return the number of confirmed messages."""
    return sum(text.startswith("message") for text in marks)


def check(kind: str, path: Path, marks: list[str], connect: str | None = None, catalog: str | None = None) -> None:
    """Open the store after a crash twice, and check that it has confirmed messages in order and accepts new ones."""
    for start in range(2):
        with open_store(str(path), kind, options_of(connect, catalog)) as store:
            names = [queue.name for queue in store.queues()]
            if "queue" in marks:
                assert names == [QUEUE]
            queue = store.queue(QUEUE)
            contents = list(queue.peek())
            assert contents[: confirmed_by(marks)] == [content_of(n) for n in range(confirmed_by(marks))]
            assert set(contents) <= {*map(content_of, range(MESSAGES)), b"later"}
            if not start:
                queue.put(b"later").result(180)
        assert start or b"later" not in contents
    assert contents[-1] == b"later"


@pytest.fixture(scope="module", params=["journal", "sql"])
def creation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Creation:
    """Record the creation of a store of each kind."""
    place = tmp_path_factory.mktemp(request.param)
    root = place / "root"
    root.mkdir()
    before = Recorded(root)
    command = (sys.executable, "-m", "tests.crash.founding", request.param, str(root / "store"))
    return request.param, before, record(root, place / "log", *command)


def explore(kind: str, states: Iterator[State], place: Path) -> int:
    """Check one of `EVERY` *states*, and return the number of checked ones."""
    count = 0
    for state in islice(distinct(states), 0, None, EVERY):
        state.write(place)
        count += 1
        try:
            check(kind, place / "store", state.marks)
        except Exception as error:
            error.add_note(f"{kind}: {state.label}; {sorted(state.tree)}")
            raise
        gc.collect()
    return count


def test_creation_survives_a_kill_at_any_change(
    creation: Creation, tmp_path: Path, tell: Callable[[str], None]
) -> None:  # V1
    kind, before, changes = creation
    count = explore(kind, before.kills(changes), tmp_path / "root")
    tell(f"creation of a store ({kind}): {count} states after kills at {len(changes)} changes, all opened")
    assert count * EVERY > 20


def test_creation_survives_a_power_cut_at_any_change(
    creation: Creation, tmp_path: Path, tell: Callable[[str], None]
) -> None:  # V1
    kind, before, changes = creation
    count = explore(kind, before.power_cuts(changes, Random(1), SAMPLES), tmp_path / "root")
    tell(f"creation of a store ({kind}): {count} states after power cuts, all opened")
    assert count * EVERY > 20


def test_explorer_finds_a_creation_without_syncs(creation: Creation, tmp_path: Path) -> None:
    """The exploration detects missing syncs: without the recorded ones, confirmed messages are lost."""
    kind, before, changes = creation
    unsynced = [change for change in changes if change.kind not in (Kind.SYNC, Kind.SYNC_DIRECTORY)]
    with pytest.raises((AssertionError, CairnError)):
        explore(kind, before.power_cuts(unsynced, Random(1), SAMPLES), tmp_path / "root")


@pytest.mark.parametrize("kind", ["journal", "sql"])
def test_creation_on_a_server_survives_kills(
    kind: str, server: Server, catalog: str, tmp_path: Path, tell: Callable[[str], None]
) -> None:  # V1
    command = [sys.executable, "-m", "tests.crash.founding", kind, str(tmp_path), server.url(), catalog, "1", str(STEP)]
    subprocess.run(
        command, env=recording.environment(tmp_path, None), cwd=recording.ROOT, check=True, timeout=600,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = sorted(int(path.stem) for path in tmp_path.glob("*.marks"))
    for number in found:
        marks = (tmp_path / f"{number}.marks").read_text().splitlines()
        assert (marks[-1:] == ["closed"]) == (number == found[-1])
        try:
            check(kind, tmp_path / str(number), marks, server.url(), f"{catalog}-{number}")
        except Exception as error:
            error.add_note(f"{kind} on a server: killed before change {number}, behind {marks}")
            raise
        gc.collect()
    tell(f"creation of a store ({kind}) on PostgreSQL: {len(found) - 1} kills, all opened")
    assert len(found) > 5
