"""The findings of `cairnmq verify`: a verdict for each fault, and how much was read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["corrupt", "torn", "note"]
SALVAGE = "`cairnmq salvage` recovers the readable part; or restore the files from a backup"


class Verdict(NamedTuple):
    """One finding.

    *corrupt*: what was once durable is not as it was written, or things that belong together disagree.
    *torn*: never confirmed; a crash leaves such things, and the next start deals with them.
    *note*: worth knowing, nothing is wrong.
    """

    kind: Kind
    place: str
    """The file, or the part of the store."""
    what: str
    lost: str = ""
    """The messages that are lost by it; empty if none is known."""
    remedy: str = ""
    first_lsn: int = 0
    end_lsn: int = 0

    def fields(self) -> dict[str, object]:
        """Return the verdict as the fields of a JSON object."""
        lsns = {"first_lsn": self.first_lsn, "end_lsn": self.end_lsn} if self.end_lsn else {}
        reported = {"kind": self.kind, "place": self.place, **lsns, "what": self.what}
        return reported | {"lost": self.lost or None, "remedy": self.remedy or None}


@dataclass
class VerifyReport:
    """The verdicts on a store, and how much of it was read."""

    store: str
    verdicts: list[Verdict] = field(default_factory=list)
    containers: int = 0
    blocks: int = 0
    records: int = 0
    bytes: int = 0
    """The size of the log, as far as it was read."""
    messages: int = 0
    """The number of messages that are on queues."""
    base_lsn: int = 0
    end_lsn: int = 0
    checked: list[str] = field(default_factory=list)
    """The parts that were checked, in words."""
    complete: bool = False
    """True if the verification reached its end."""
    seconds: float = 0.0

    def counts(self) -> Counter[str]:
        return Counter(verdict.kind for verdict in self.verdicts)

    @property
    def exit_status(self) -> int:
        return 1 if self.counts()["corrupt"] else 0

    def fields(self) -> dict[str, object]:
        """Return the summary as the fields of a JSON object."""
        counts = self.counts()
        reported = {name: value for name, value in vars(self).items() if name != "verdicts"}
        reported["seconds"] = round(self.seconds, 3)
        return reported | {
            "corrupt": counts["corrupt"], "torn": counts["torn"], "notes": counts["note"],
            "findings": [verdict.fields() for verdict in self.verdicts],
        }  # fmt: skip
