"""Members that back up their divergent state before a state transfer, in memory."""

from __future__ import annotations

from cairnmq.base.errors import DiskFull
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.recovery.recover import recover
from cairnmq.store.journaled.discarded_state import KeptState
from tests.harness.broker.world import number_of
from tests.harness.cluster.cluster_harness import ClusterHarness, SimulatedMember
from tests.harness.recovery.world import OPTIONS, MemoryWiring


class MemoryAside:
    """Backups of the divergent state of a member in memory, each on a disk of its own."""

    def __init__(self, member: SimulatedMember) -> None:
        self._member = member
        self.kept: list[tuple[MemoryDirectory, object]] = []
        self.full = False

    def keep(self, durable_lsn: int) -> KeptState:
        if self.full:
            raise DiskFull("aside", "no room", "make some")
        assert self._member.store.durable_lsn >= durable_lsn
        self.kept.append((self._member.disk.after_kill(), self._member.wiring.hold()))
        return KeptState(f"aside/{len(self.kept)}", durable_lsn)

    def make_room(self) -> None:
        self.kept.clear()

    def numbers(self, which: int) -> list[int]:
        """Return the numbers of the messages on `q` in backup *which*, in the order in which a broker recovers them."""
        disk, held = self.kept[which]
        wiring = MemoryWiring()
        wiring.put_back(held)
        store, _ = recover(disk.after_kill(), wiring, self._member.clock, OPTIONS)
        queue_id = next(row.id for row in store.queues() if row.name == "q")
        found = [number_of(store.load_piece(one, 0)) for one in store.messages().get(queue_id, ())]
        store.journal.abandon()
        return found


class KeepingMember(SimulatedMember):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.aside = MemoryAside(self)

    def start(self) -> None:
        super().start()
        self.core.divergent_state.aside = self.aside


def aside_of(harness: ClusterHarness, node: int) -> MemoryAside:
    member = harness[node]
    assert isinstance(member, KeepingMember)
    return member.aside
