"""Reports of a recovery in readable text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..base.texts import counted
from ..journal.write.open import OpenReport


@dataclass
class RecoveryReport:
    """Report of the recovery of a journaled store: counts, dropped messages, and remarks."""

    log: OpenReport
    seconds: float
    created: bool
    queues: int
    messages: int
    discarded: int
    """Messages whose content never became complete, or that never reached a queue."""
    expunged: dict[str, int] = field(default_factory=dict)
    """The number of messages that were still on each queue whose deletion was final in SQL; they are deleted now."""
    homeless: dict[int, int] = field(default_factory=dict)
    """Queue id unknown to SQL to the number of messages that are kept on it and not delivered."""

    def lines(self) -> list[str]:
        """Return the report of a journaled store as lines of text."""
        log = self.log
        if self.created:
            return ["new store"]
        how = "closed cleanly" if log.closed_cleanly else "not closed cleanly"
        checkpoint = f"a checkpoint at LSN {log.resumed_lsn} and " if log.resumed_lsn else ""
        found = [
            f"recovered {counted(self.messages, 'message')} on {counted(self.queues, 'queue')} from {checkpoint}"
            f"{counted(log.records, 'record')} "
            f"in {self.seconds:.2f} s (LSN {log.base_lsn} to {log.end_lsn}; {how})"
        ]
        if log.torn is not None:
            found.append(f"cut a torn tail at LSN {log.torn.first_lsn}: {log.torn.reason}; nothing confirmed was lost")
        if log.rewritten_bytes:
            found.append(f"rewrote {counted(log.rewritten_bytes, 'byte')} of the tail, not known to be durable")
        return found + unplaced_lines(self.discarded, self.expunged, self.homeless) + log.remarks


@dataclass
class SqlReport:
    """Report of the recovery of a store that is all in SQL, or in memory."""

    seconds: float = 0.0
    created: bool = True
    queues: int = 0
    messages: int = 0
    discarded: int = 0
    expunged: dict[str, int] = field(default_factory=dict)
    homeless: dict[int, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report of a store in SQL or in memory as lines of text."""
        if self.created:
            return ["new store", *self.remarks]
        contents = f"{counted(self.messages, 'message')} on {counted(self.queues, 'queue')}"
        found = f"recovered {contents} from SQL in {self.seconds:.2f} s"
        return [found, *unplaced_lines(self.discarded, self.expunged, self.homeless), *self.remarks]


def unplaced_lines(discarded: int, expunged: Mapping[str, int], homeless: Mapping[int, int]) -> list[str]:
    """Return a line for each group of discarded, deleted or kept messages that are on no known queue."""
    found = []
    if discarded:
        found.append(f"discarded {counted(discarded, 'message')}, incomplete or on no queue")
    found += [
        f"deleted {counted(count, 'message')} of queue {name!r}, which was being deleted when the broker stopped"
        for name, count in expunged.items()
    ]
    found += [
        f"kept {counted(count, 'message')} of queue id {queue_id}, which is not in SQL; not delivered"
        for queue_id, count in sorted(homeless.items())
    ]
    return found
