"""Stretches of a log that can't be read, and the messages that are lost with them."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.disk.seam import ReadableDirectory
from ...base.errors import CairnError
from ...base.texts import counted
from ...journal.read.scanner import Damage
from ...recovery.damage_survey import Survey, survey
from ...store.wiring.rescue import Rescued
from ..inspect.journal_check import Progress
from .checked_reader import CheckedReader
from .verdicts import SALVAGE, Verdict


def gap_verdicts(
    directory: ReadableDirectory, gaps: Sequence[Damage], rescued: Rescued | None, reader: CheckedReader,
    progress: Progress,
) -> list[Verdict]:  # fmt: skip
    """Return a verdict for each of *gaps*. A survey, which reads the log again, determines the losses."""
    names = {} if rescued is None else rescued.queue_names
    try:
        found: Survey | None = survey(
            directory, names, None if rescued is None else rescued.uuid,
            lambda done, total: progress("determining losses", done, total),
        )  # fmt: skip
    except CairnError:
        found = None
    verdicts = []
    for gap in gaps:
        lost = "" if found is None else _lost(found, gap, names)
        what = f"it was durable and can't be read: {gap.reason}"
        place = reader.file_name_of(gap.first_lsn)
        verdicts.append(Verdict("corrupt", place, what, lost, SALVAGE, gap.first_lsn, gap.end_lsn))
    return verdicts


def _lost(found: Survey, gap: Damage, names: dict[int, str]) -> str:
    """The losses of *gap*, in words."""
    first, end = gap.first_lsn, gap.end_lsn
    counts: dict[str, int] = {}
    for message in found.lost.values():
        if first <= message.message_id < end:
            name = ", ".join(names.get(queue, f"id {queue}") for queue in message.queue_ids) or "not known"
            counts[name] = counts.get(name, 0) + 1
    reported = [f"{counted(count, 'message')} of queue {name}" for name, count in counts.items()]
    hidden = [one for one in found.gaps if one.finding.first_lsn < end and one.finding.end_lsn > first]
    at_most = sum(one.unknown_records for one in hidden)
    if at_most:
        reported.append(f"at most {counted(at_most, 'record')} of which nothing is known")
        if found.doubtful:
            reported.append(f"{counted(min(at_most, len(found.doubtful)), 'older message')} may come back")
    return "; ".join(reported) or "no message"
