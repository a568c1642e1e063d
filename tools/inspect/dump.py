"""The dump: the content of a journal, line by line, and its damage. It never writes and needs no broker."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from crc32c import crc32c

from ...base.texts import counted
from ...journal.format.block import Block
from ...journal.format.record import HEAD_BYTES
from ...recovery.salvageable import Finding
from .evidence import Evidence
from .lines import Lines, Row, full_label_of_kind
from .row_filter import RowFilter


@dataclass
class Totals:
    """The totals of a dump, within its selection."""

    blocks: int = 0
    block_bytes: int = 0
    records: Counter[int] = field(default_factory=Counter)
    """By type and flags, see `lines.full_label_of_kind`; only counted if a summary is wanted."""
    shown: int = 0
    """Records that were written as lines."""
    payload_bytes: Counter[int] = field(default_factory=Counter)
    first_lsn: int = 0
    last_lsn: int = 0
    findings: list[Finding] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]

    @property
    def exit_status(self) -> int:
        return 1 if self.of_kind("corrupt") else 0

    def count(self, rows: list[Row]) -> None:
        for _, row in rows:
            kind = row[0] | row[1] << 8
            self.records[kind] += 1
            self.payload_bytes[kind] += row[4]
        if rows:
            self.first_lsn = self.first_lsn or rows[0][0]
            self.last_lsn = rows[-1][0]

    def as_text(self) -> str:
        """Return the totals as text for people."""
        lines = [
            f"{full_label_of_kind(kind):<30}{count:>12} records {self.payload_bytes[kind]:>15} B of payload"
            for kind, count in sorted(self.records.items())
        ]
        lines.append(f"{'all':<30}{self.records.total():>12} records {self.payload_bytes.total():>15} B of payload")
        lines.append(f"{'blocks':<30}{self.blocks:>12}         {self.block_bytes:>15} B with heads and padding")
        if self.first_lsn:
            lines.append(f"records from LSN {self.first_lsn} to {self.last_lsn}")
        lines += [f"{finding.kind} at LSN {finding.first_lsn}: {finding.sentence()}" for finding in self.findings]
        return "\n".join([*lines, self.damage_text() or "no damage"])

    def as_json(self) -> str:
        """Return the totals as a line of JSON for programs."""
        return json.dumps({
            "summary": {
                "records": self.records.total(), "payload_bytes": self.payload_bytes.total(),
                "first_lsn": self.first_lsn, "last_lsn": self.last_lsn,
                "blocks": self.blocks, "block_bytes": self.block_bytes,
                "types": {
                    full_label_of_kind(kind): {"records": count, "payload_bytes": self.payload_bytes[kind]}
                    for kind, count in sorted(self.records.items())
                },
                "corrupt": len(self.of_kind("corrupt")), "torn": len(self.of_kind("torn")),
                "damage": [finding.fields() for finding in self.findings],
            }
        }, separators=(",", ":"))  # fmt: skip

    def damage_text(self) -> str:
        """Return one line on the amount of damage, "" without damage."""
        parts = []
        for kind, meaning in (("corrupt", "was once durable"), ("torn", "never confirmed, recovery drops it")):
            if found := self.of_kind(kind):
                size = sum(finding.end_lsn - finding.first_lsn for finding in found)
                places = counted(len(found), "place")
                first_lsn = found[0].first_lsn
                parts.append(f"{places} {kind}, {counted(size, 'byte')}, the first at LSN {first_lsn} ({meaning})")
        return "; ".join(parts)


def dump(
    evidence: Evidence, row_filter: RowFilter, lines: Lines, write: Callable[[str], object], totals: Totals, *,
    with_blocks: bool = False, totals_only: bool = False,
) -> None:  # fmt: skip
    """Call *write* with a text of complete lines per block, and add the counts to *totals*, even if *write* raises.

    The last line of a JSON dump marks its end: a dump without it was cut off.
    """

    def tell(finding: Finding) -> None:
        totals.findings.append(finding)
        if not totals_only:
            write(lines.damage(finding) + "\n")

    selection = row_filter.selection
    for found in evidence.scan(selection.start_lsn):
        if isinstance(found, Finding):
            if not found.end_lsn or selection.overlaps(found.first_lsn, found.end_lsn):
                tell(found)
            continue
        container, block = found
        if selection.end_lsn is not None and block.lsn >= selection.end_lsn:
            break
        rows = row_filter.rows(block)
        if not rows and not (row_filter.is_range and selection.overlaps(block.lsn, block.end_lsn)):
            continue
        totals.blocks += 1
        totals.block_bytes += block.end_lsn - block.lsn
        bad = bad_payloads(block, rows)
        if totals_only:
            totals.count(rows)
        else:
            shown = [lines.block(block, container)] if with_blocks else []
            shown += lines.records(block, container, rows, bad)
            totals.shown += len(rows)
            if shown:
                write("\n".join(shown) + "\n")
        for lsn in sorted(bad):
            tell(Finding("corrupt", lsn, lsn + HEAD_BYTES, container, "its payload does not match its checksum"))
    end = lines.end(totals.shown, len(totals.of_kind("corrupt")), len(totals.of_kind("torn")))
    if end and not totals_only:
        write(end + "\n")


def last_of(evidence: Evidence, row_filter: RowFilter, count: int) -> RowFilter:
    """*row_filter* for the last *count* records that it selects, as the log is now; for all, if there are fewer.

    It is read from the end, by ever more containers, until there are so many.
    """
    selection = row_filter.selection
    begins = evidence.begins()
    back = 1
    while True:
        from_lsn = max(selection.start_lsn, begins[-back] if back <= len(begins) else 0)
        found: deque[int] = deque(maxlen=count)
        end_lsn = 0
        some = row_filter.within(from_lsn, selection.end_lsn)
        for one in evidence.scan(from_lsn):
            if isinstance(one, Finding):
                end_lsn = max(end_lsn, one.end_lsn)
                continue
            if selection.end_lsn is not None and one[1].lsn >= selection.end_lsn:
                break
            found.extend(lsn for lsn, _ in some.rows(one[1]))
            end_lsn = one[1].end_lsn
        if len(found) == count:
            return row_filter.within(found[0], min(end_lsn, selection.end_lsn or end_lsn))
        if back > len(begins) or from_lsn == selection.start_lsn:
            return row_filter
        back *= 4


def bad_payloads(block: Block, rows: list[Row]) -> set[int]:
    """Return the LSNs of records whose payload is damaged, though the block was written completely."""
    payloads = block.body[HEAD_BYTES * block.head.records :]
    return {
        lsn
        for lsn, (_, _, _, place, size, crc, _, _, _, _, _, _) in rows
        if crc32c(payloads[place : place + size]) != crc
    }
