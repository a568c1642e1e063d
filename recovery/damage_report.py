"""The verdict on a damaged journal, in a sentence: which container, which LSNs, what is lost, and what to do.

Recovery fails at the first durable block that can't be read. Before the error is raised, the whole log is surveyed, so
that an operator who chooses between a backup and a salvage knows the loss of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ..base.disk.seam import Directory
from ..base.errors import CairnError, CorruptJournal
from ..journal.format import container
from .damage_survey import Survey, survey

REMEDY = (
    "nothing was changed; `cairnmq salvage` recovers complete messages, `cairnmq dump` lists them; or restore from "
    "a backup"
)
_TOLD = 3
"""The maximum number of items that are named per kind; the report of a salvage names all."""
_SUSPECTS = 8
"""The maximum number of files that are named as candidates for a missing container."""


def explained(error: CorruptJournal, directory: Directory, queue_names: Mapping[int, str]) -> CorruptJournal:
    """Return *error*, which was raised for *directory*, with the location and the losses that a survey finds."""
    try:
        found = survey(directory, queue_names)
    except CairnError as another:
        return _with(error, directory.path, f"{error.reason}; the loss can't be determined ({another.reason})")
    hit = [finding.place for finding in found.findings if finding.end_lsn > error.first_lsn]
    is_missing = "" in hit[:2]  # before a missing container is mostly the unused rest of another
    place = directory.path if not hit or is_missing else f"{directory.path}/{hit[0]}"
    reported = [error.reason, *sentences(found, queue_names)]
    reported += [f"the head of {one.place} can't be read ({one.reason})" for one in found.head_findings()[:_TOLD]]
    reported += [remark for remark in found.remarks() if container.SUFFIX in remark][:_TOLD]
    reported += _suspects(found)
    return _with(error, place, "; ".join(reported))


def _suspects(found: Survey) -> list[str]:
    """Return a clause that names the files outside the log if a container is missing: it may be one of them."""
    if not any(gap.finding.place == "" for gap in found.gaps):
        return []
    reader = found.reader
    heads = reader.heads
    numbers = {*heads.free, *(head.number for slot, head in heads.by_slot.items() if slot not in reader.slots)}
    names = [container.file_name(number) for number in sorted(numbers)]
    if not names:
        return []
    more = ", ..." if len(names) > _SUSPECTS else ""
    return [f"no part of the log is in {', '.join(names[:_SUSPECTS])}{more}"]


def _with(error: CorruptJournal, place: str, reason: str) -> CorruptJournal:
    return CorruptJournal(place, reason, REMEDY, error.first_lsn, error.end_lsn)


def sentences(found: Survey, queue_names: Mapping[int, str]) -> list[str]:
    """Return the losses from the damage, one clause for each kind."""
    reported = [f"in all, {_gaps(found)}"] if len(found.gaps) > 1 else []
    reported += _lost(found, queue_names)
    if any(gap.unknown for gap in found.gaps):
        reported += _unknown(found)
    elif not found.lost:
        reported.append("every message is complete")
    return reported


def _gaps(found: Survey) -> str:
    named = [
        f"LSN {gap.finding.first_lsn} to {gap.finding.end_lsn} ({gap.finding.place or gap.finding.reason})"
        for gap in found.gaps[:_TOLD]
    ]
    more = [f"{len(found.gaps) - _TOLD} more"] if len(found.gaps) > _TOLD else []
    return "can't be read: " + ", ".join(named + more)


def _lost(found: Survey, queue_names: Mapping[int, str]) -> list[str]:
    by_queues: dict[tuple[tuple[int, ...], bool], list[int]] = defaultdict(list)
    for message in found.lost.values():
        by_queues[message.queue_ids, message.certain].append(message.message_id)
    reported = []
    for (queue_ids, certain), ids in by_queues.items():
        names = ", ".join(queue_names.get(queue_id, str(queue_id)) for queue_id in queue_ids) or "that is not known"
        span = f"message {ids[0]}" if len(ids) == 1 else f"messages {min(ids)} to {max(ids)}"
        reported.append(f"{span} on queue {names}: {len(ids)} {'' if certain else 'perhaps '}unreadable")
    return reported


def _unknown(found: Survey) -> list[str]:
    first = min(first for gap in found.gaps for first, _ in gap.unknown)
    end = max(end for gap in found.gaps for _, end in gap.unknown)
    at_most = sum(gap.unknown_records for gap in found.gaps)
    ended = len({message_id for gap in found.gaps for message_id in gap.ended})
    copied = len({lsn for gap in found.gaps for lsn in gap.copied})
    reported = f"messages {first} to {end}: at most {at_most} unreadable"
    if ended or copied:
        reported += f", beside {ended} that were dequeued since" + (f" and {copied} that were copied" if copied else "")
    back = min(at_most, sum(1 for message_id in found.doubtful if message_id < end))
    dequeues = f"at most {back} dequeues may be lost: those messages may come back" if back else "no dequeue is lost"
    return [reported, dequeues]
