"""The report of a salvage, for people, for programs, and for the quarantine."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...recovery.damage_survey import Gap, LostMessage
from ...recovery.salvageable import Finding

LOST_STATUS = 3
"""The exit status of a salvage that could not recover everything; 1 is for one that could not be done."""


@dataclass
class DoubtfulMessage:
    """A message that is in the salvaged store, and may have been dequeued, or never confirmed."""

    message_id: int
    new_id: int
    queue: str
    reason: str


@dataclass
class SalvageReport:
    """Ids are those of the damaged store, but for `DoubtfulMessage.new_id`."""

    store: str
    salvaged: str = ""
    """The path of the salvaged store; "" until it is complete."""
    queues: dict[str, int] = field(default_factory=dict)
    """Name to how many messages were salvaged on it."""
    unnamed: list[str] = field(default_factory=list)
    """The queues whose names were lost."""
    findings: list[Finding] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    lost: list[LostMessage] = field(default_factory=list)
    unplaced: list[int] = field(default_factory=list)
    """Messages of which it is not known whether they were on a queue; what is left of them is in the quarantine."""
    doubtful: list[DoubtfulMessage] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """The contents of the quarantine: file name to description."""
    queue_names: dict[int, str] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """Counted once per queue they are on."""
        return sum(self.queues.values())

    @property
    def is_complete(self) -> bool:
        return not self.lost and not self.unplaced and all(finding.kind == "torn" for finding in self.findings)

    @property
    def exit_status(self) -> int:
        return 0 if self.is_complete else LOST_STATUS

    def name_of(self, queue_id: int) -> str:
        return self.queue_names.get(queue_id, str(queue_id))

    def fields(self) -> dict[str, object]:
        """Return the report of a salvage as the fields of a JSON object."""
        gaps = {gap.finding: gap for gap in self.gaps}
        return {
            "store": self.store,
            "salvaged": self.salvaged or None,
            "complete": self.is_complete,
            "messages": self.messages,
            "queues": self.queues,
            "queues_without_a_name": self.unnamed,
            "findings": [self._finding(finding, gaps.get(finding)) for finding in self.findings],
            "lost": self.lost_fields(),
            "unplaced": self.unplaced,
            "doubtful": [vars(message) for message in self.doubtful],
            "remarks": self.remarks,
            "quarantine": self.files,
        }  # fmt: skip

    def lost_fields(self) -> list[dict[str, object]]:
        """Return the lost messages as JSON objects."""
        return [
            {
                "message_id": message.message_id, "queues": [self.name_of(queue) for queue in message.queue_ids],
                "certain": message.certain, "reason": message.reason,
            }
            for message in self.lost
        ]  # fmt: skip

    def _finding(self, finding: Finding, gap: Gap | None) -> dict[str, object]:
        reported = finding.fields()
        if gap is not None:
            first, end = finding.first_lsn, finding.end_lsn
            reported |= {
                "unknown": gap.unknown,
                "unknown_records_at_most": gap.unknown_records,
                "dequeued_since": sorted(gap.ended),
                "copied": sorted(gap.copied),
                "lost": [message.message_id for message in self.lost if first <= message.message_id < end],
                "doubtful": sum(1 for message in self.doubtful if message.message_id < end) if gap.unknown else 0,
            }
        return reported
