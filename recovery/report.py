"""Reports of a recovery in readable text."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..base.texts import counted
from ..journal.write.open import OpenReport


@dataclass
class SqlReport:
    """Report of the recovery of a store that is all in SQL, or in memory: counts, dropped messages, and remarks."""

    seconds: float = 0.0
    created: bool = True
    queues: int = 0
    messages: int = 0
    discarded: int = 0
    """Messages whose content never became complete, or that never reached a queue."""
    expunged: dict[str, int] = field(default_factory=dict)
    """The number of messages that were still on each queue whose deletion was final in SQL; they are deleted now."""
    homeless: dict[int, int] = field(default_factory=dict)
    """Queue id unknown to SQL to the number of messages that are kept on it and not delivered."""
    remarks: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        return [*(["new store"] if self.created else self._recovered()), *self.remarks]

    def _recovered(self) -> list[str]:
        return [f"recovered {self._contents()} from SQL in {self.seconds:.2f} s", *self._unplaced()]

    def _contents(self) -> str:
        return f"{counted(self.messages, 'message')} on {counted(self.queues, 'queue')}"

    def _unplaced(self) -> list[str]:
        """Return a line for each group of discarded, deleted or kept messages that are on no known queue."""
        found = []
        if self.discarded:
            found.append(f"discarded {counted(self.discarded, 'message')}, incomplete or on no queue")
        found += [
            f"deleted {counted(count, 'message')} of queue {name!r}, which was being deleted when the broker stopped"
            for name, count in self.expunged.items()
        ]
        found += [
            f"kept {counted(count, 'message')} of queue id {queue_id}, which is not in SQL; not delivered"
            for queue_id, count in sorted(self.homeless.items())
        ]
        return found


@dataclass(kw_only=True)
class RecoveryReport(SqlReport):
    """Report of the recovery of a journaled store."""

    log: OpenReport

    def _recovered(self) -> list[str]:
        log = self.log
        how = "closed cleanly" if log.closed_cleanly else "not closed cleanly"
        checkpoint = f"a checkpoint at LSN {log.resumed_lsn} and " if log.resumed_lsn else ""
        found = [
            f"recovered {self._contents()} from {checkpoint}{counted(log.records, 'record')} "
            f"in {self.seconds:.2f} s (LSN {log.base_lsn} to {log.end_lsn}; {how})"
        ]
        if log.torn is not None:
            found.append(f"cut a torn tail at LSN {log.torn.first_lsn}: {log.torn.reason}; nothing confirmed was lost")
        if log.rewritten_bytes:
            found.append(f"rewrote {counted(log.rewritten_bytes, 'byte')} of the tail, not known to be durable")
        return found + self._unplaced() + log.remarks
