"""The reasons for the length of the log: the pins of its base, by name, and the space that their end would free.

A slot stays in the log while it is held (`store.holders`). The base is the oldest held slot. Later slots without a
holder are reclaimed as holes. A pin of the base therefore costs its own container, and the containers that are needed
only for the end of records in it.
"""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...journal.format.block import ACQUISITIONS, Block
from ...journal.format.holes import most as most_holes
from ...journal.format.record import Flag, RecordType
from ...store.contract.layout import HOLD_NAME
from ...store.directory.lock import is_in_use, is_locked
from ...store.message_map.pins import Pins
from ...store.reclaim.relocation_policy import WORTH_LEVEL, allowed_bytes, level
from ...store.reclaim.slot_holders import MessageHolds, PurgeHolds, SlotHolders, TransactionHolds
from ..history.heads_only import HeadsReader
from ..history.queue_totals import head_at, record_at
from ..inspect.format_text import size_text
from ..inspect.journal_check import Progress, byte_counter
from ..inspect.lines import acquired_in
from ..inspect.properties import amqp_id_of
from .overview import StoreOverview, overview_of

_ABOUT_CONSUMERS = (RecordType.LOG_OPEN, RecordType.ACQUIRE)
Ctl = Callable[..., str]
_BROKER_URL = "amqp://127.0.0.1:5672"
_LISTED = 20
"""The maximum number of messages that are listed individually."""
MOST_COMMANDS = 10
"""The maximum number of commands of each kind in an explanation."""


class Pin(NamedTuple):
    """An object that holds the oldest slot."""

    kind: str
    """message, transaction, purge, ends."""
    name: str
    details: dict[str, object]
    remedies: tuple[str, ...]
    """Commands that end it."""
    inspections: tuple[str, ...] = ()
    """Commands that show it, and change nothing."""

    def fields(self) -> dict[str, object]:
        return {
            "kind": self.kind, "name": self.name, **self.details, "inspections": list(self.inspections),
            "remedies": list(self.remedies),
        }  # fmt: skip


@dataclass
class Explanation:
    """A holder of the log's oldest slot."""

    store: str
    base_lsn: int = 0
    end_lsn: int = 0
    slot: int = -1
    file: str = ""
    pins: list[Pin] = field(default_factory=list)
    """The first of them; `counts` counts all."""
    counts: Counter[str] = field(default_factory=Counter)
    by_queue: dict[str, int] = field(default_factory=dict)
    """Messages in the oldest slot, by queue."""
    used_bytes: int = 0
    live_bytes: int = 0
    freed_bytes: int = 0
    """The bytes that would be free if all holders ended."""
    by_itself: list[str] = field(default_factory=list)
    """The events that will happen without an operator."""
    inspections: list[str] = field(default_factory=list)
    """Commands that show the pins."""
    remedies: list[str] = field(default_factory=list)
    """Commands that end them."""
    notes: list[str] = field(default_factory=list)
    complete: bool = True

    def fields(self) -> dict[str, object]:
        """Return the explanation as the fields of a JSON object."""
        return vars(self) | {"pins": [pin.fields() for pin in self.pins], "counts": dict(self.counts)}


def explain_tail(
    path: str, progress: Progress, connect: str | None = None, catalog: str | None = None, listed: int = _LISTED,
    url: str = _BROKER_URL,
) -> Explanation:
    """The pins of the base of the log of the store at *path*. Raises `CairnError` if that is none.

    *url*: the broker of the store, which its commands name: a host may have several.
    """
    overview = overview_of(path, progress, connect, catalog)
    reader, size = overview.reader, overview.reader.container_bytes
    found = Explanation(path, reader.heads.base_lsn, overview.end_lsn, notes=overview.notes, complete=overview.complete)
    found.used_bytes, found.live_bytes = len(reader.slots) * size, overview.state.pins.live_bytes
    if not reader.slots:
        return found
    slot = next((slot for slot in reader.slots if overview.state.pins.is_needed(slot)), reader.slots[-1])
    found.slot, found.file = slot, reader.heads.file_name(slot)
    _fill(found, overview, slot, listed, ctl_of(url))
    _name_takers(found, overview, progress)
    found.freed_bytes = size * len(freed_with(overview.state.pins, slot)) if overview.state.pins.is_needed(slot) else 0
    found.by_itself = _by_itself(found, overview, slot)
    return found


def ctl_of(url: str) -> Ctl:
    """Return a function that makes a command for the broker at *url* of its words."""
    return lambda *words: " ".join(("cairnmq ctl --url", shlex.quote(url), *words))


def _fill(found: Explanation, overview: StoreOverview, slot: int, listed: int, ctl: Ctl) -> None:
    queues: Counter[str] = Counter()
    for holder in SlotHolders(overview.state, overview.reader.container_bytes).of(slot):
        pin = None
        if isinstance(holder, MessageHolds):
            kind = "message"
            queues.update(overview.name_of(queue_id) for queue_id in holder.queue_ids)
            if found.counts[kind] < listed:
                pin = _message(overview, holder, ctl)
        elif isinstance(holder, TransactionHolds):
            kind = "transaction"
            pin = _transaction(overview, holder, ctl)
        elif isinstance(holder, PurgeHolds):
            kind = "purge"
            reported = "a running broker processes its messages in steps"
            pin = Pin(kind, f"purge of queue {overview.name_of(holder.queue_id)}", {"what": reported}, ())
        else:
            kind = "ends"
            text = holder.description(overview.queue_names)
            pin = Pin(kind, text, {"slot": holder.slot, "records": holder.records}, ())
        found.counts[kind] += 1
        if pin is not None:
            found.pins.append(pin)
    found.by_queue = dict(queues.most_common())
    inspections = dict.fromkeys(one for pin in found.pins for one in pin.inspections)
    remedies = dict.fromkeys(one for pin in found.pins for one in pin.remedies)
    found.inspections, found.remedies = list(inspections)[:MOST_COMMANDS], list(remedies)[:MOST_COMMANDS]


def _name_takers(found: Explanation, overview: StoreOverview, progress: Progress) -> None:
    """Add the consumers that acquired the messages last, if the newest block shows that acquisitions are recorded.

    The log does not record that a message was requeued: its consumer may have released it. A broker that starts
    dispatches all messages again, so earlier acquisitions do not count.
    """
    about = {int(str(pin.details["persistence_id"])): pin.details for pin in found.pins if pin.kind == "message"}
    slots, size = overview.reader.slots, overview.reader.container_bytes
    if not about or not slots or not overview.flags & ACQUISITIONS:
        return
    takers: dict[int, dict[str, object]] = {}
    reader = HeadsReader(overview.reader.directory, known=overview.reader.heads, also=(RecordType.ACQUIRE,))
    add = byte_counter("looking for consumers", len(slots) * size, progress)
    for block in reader.scan(min(about)):
        if not isinstance(block, Block):
            continue
        add(block.end_lsn - block.lsn)
        chosen = np.flatnonzero(np.isin(block.table()["type"], _ABOUT_CONSUMERS))
        heads = block.heads() if len(chosen) else []
        for number in chosen.tolist():
            head = heads[number]
            if head.type == RecordType.LOG_OPEN:
                takers.clear()
                continue
            taken = acquired_in(block, head)
            if taken is not None and head.flags & Flag.ENQUEUE:  # returned
                takers = {one: taker for one, taker in takers.items() if one not in taken.message_ids}
            elif taken is not None:
                taker: dict[str, object] = {"container": taken.container, "link": taken.link}
                taker |= {"lsn": block.record_lsn(number), "time_us": head.time_us}
                takers |= dict.fromkeys(about.keys() & set(taken.message_ids), taker)
    for message_id, taker in takers.items():
        about[message_id]["acquired"] = taker


def _message(overview: StoreOverview, holder: MessageHolds, ctl: Ctl) -> Pin:
    state, message_id = overview.state, holder.message_id
    lsn = state.place_of(message_id)
    record = record_at(overview.reader, lsn)
    detailed = state.detailed.get(message_id)
    size = sum(state.piece_sizes(message_id)) if detailed is None or detailed.is_complete else detailed.size_bytes
    names = [overview.name_of(queue_id) for queue_id in holder.queue_ids]
    details: dict[str, object] = {
        "persistence_id": message_id, "lsn": lsn, "queues": names, "size_bytes": size,
        "age_s": None if record is None else round(time.time() - record.head.time_us / 1e6, 3),
        "relocated": lsn != message_id,
    }  # fmt: skip
    if record is not None and (amqp_id := amqp_id_of(record.payload)):
        details["message_id"] = amqp_id
    locks = [
        prepared.xid.hex() for prepared in state.outcomes.prepared.values()
        if any(message_id == locked for _, locked, _ in prepared.intentions)
    ]  # fmt: skip
    if locks:
        details["locked_by"] = locks
    inspections: list[str] = []
    remedies: list[str] = []
    for xid in locks:
        remedies += _ending(xid, ctl)
    for queue_id in holder.queue_ids:
        if queue_id in overview.queue_names:
            name = shlex.quote(overview.queue_names[queue_id])
            inspections.append(ctl("queues peek", name))
            remedies += [ctl("queues purge", name), ctl("queues move", name, "OTHER --count 1")]
    on = f"on queue {', '.join(names)}" if names else "on no queue yet"
    return Pin("message", f"message {message_id} {on}", details, tuple(remedies), tuple(inspections))


def _transaction(overview: StoreOverview, holder: TransactionHolds, ctl: Ctl) -> Pin:
    head = head_at(overview.reader, holder.txn_id)
    prepared = overview.state.outcomes.prepared.get(holder.txn_id)
    details: dict[str, object] = {
        "transaction_id": holder.txn_id, "xid": holder.xid.hex(), "state": holder.state,
        "operations": 0 if prepared is None else len(prepared.intentions),
        "age_s": None if head is None else round(time.time() - head.time_us / 1e6, 3),
    }  # fmt: skip
    xid = holder.xid.hex()
    remedies = _ending(xid, ctl) if holder.state == "prepared" else [ctl("transactions forget", xid)]
    return Pin("transaction", holder.description(overview.queue_names), details, tuple(remedies))


def _ending(xid: str, ctl: Ctl) -> list[str]:
    return [ctl("transactions commit", xid), ctl("transactions rollback", xid)]


def freed_with(pins: Pins, slot: int) -> set[int]:
    """The slots that nothing holds any more once nothing holds *slot*: those, too, that only speak of such."""
    freed, waiting = {slot}, [slot]
    ended_in: dict[int, list[int]] = defaultdict(list)
    for other, ends in pins.tombstones.items():
        for ended in ends:
            ended_in[ended].append(other)
    while waiting:
        for other in ended_in[waiting.pop()]:
            if other not in freed and other not in pins.live and freed.issuperset(pins.tombstones[other]):
                freed.add(other)
                waiting.append(other)
    return freed


def _by_itself(found: Explanation, overview: StoreOverview, slot: int) -> list[str]:
    pins, size = overview.state.pins, overview.reader.container_bytes
    reported = []
    if not is_in_use(overview.path):
        reported.append("nothing while no broker runs on the store")
    if is_locked(os.path.join(overview.path, HOLD_NAME)):
        reported.append("a backup holds the store: no container is used again until it ends")
    if not pins.is_needed(slot):
        reported.append("nothing pins it: the base advances when the log continues in another container, or is idle")
        return reported
    if slot == max(overview.reader.slots):
        reported.append("the log is still being written there: it is as short as it can be")
        return reported
    allowed, cost = allowed_bytes(found.live_bytes, size), pins.cost(slot)
    cheaper = sum(
        1 for other in overview.reader.slots[:-1]
        if other != slot and pins.is_needed(other) and (pins.cost(other), other) < (cost, slot)
    )  # fmt: skip
    mine = level(cost, size)
    if found.used_bytes <= allowed:
        left = allowed - found.used_bytes
        reported.append(
            f"compaction waits: the log takes {size_text(found.used_bytes)}, and may take {size_text(allowed)}, twice "
            f"its live records and three containers; it begins when the log has grown by {size_text(left)} more"
        )
    else:
        took = size_text(found.used_bytes)
        reported.append(f"compaction is in progress: the log takes {took}, more than {size_text(allowed)}")
    if len(overview.reader.holes) >= most_holes(size):
        reported.append(
            f"the log has the maximum of {len(overview.reader.holes)} reclaimed ranges: only containers beside one, or "
            "at the beginning of the log, are compacted, those with the fewest live bytes first"
        )
    elif mine >= WORTH_LEVEL:
        reported.append(f"this container is not compacted: {size_text(cost)} of it are live")
    else:
        order = "it is the next one" if not cheaper else f"{cheaper} others with fewer live bytes come first"
        reported.append(f"compaction copies {size_text(cost)} of this container to the end of the log; {order}")
    return reported
