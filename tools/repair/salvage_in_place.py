"""Salvage in place: the salvaged journal and wiring replace the damaged ones, which move to a quarantine.

STORE/salvaged-TIME      the new store during its construction
STORE/quarantine-TIME    the damaged journal and wiring, with the report and the bytes that could not be salvaged

Each step is one rename. Between the steps the store is the damaged one, or refuses to start because its journal or its
wiring is missing, or is the salvaged one. The damaged journal is moved first: from then on no broker can have written
anything, and an interrupted salvage continues where it stopped.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from datetime import UTC, datetime

from ...base.clock import Clock
from ...base.disk.real import RealDirectory, disk_errors
from ...base.errors import CairnError
from ...base.typed_json import decode_json
from ...store.contract.layout import JOURNAL_NAME
from ...store.directory.lock import StoreLock
from ...store.wiring.wiring import FILE_NAME as WIRING_NAME
from ..inspect.journal_check import Progress
from .damaged_store import check_store, examine
from .quarantine import QUARANTINE_NAME, REPORT_NAME, is_complete
from .salvage import build
from .salvage_report import SalvageReport

_SALVAGED, _QUARANTINE = "salvaged-", "quarantine-"
_PARTS = (JOURNAL_NAME, WIRING_NAME, WIRING_NAME + "-journal")
"""The files that are moved, in this order: without a journal nothing starts."""


def salvage_in_place(path: str, clock: Clock, progress: Progress) -> SalvageReport | dict[str, object]:
    """Salvage the store at *path*; a sound store is not changed.

    For an interrupted salvage that this call completes, returns the report in the quarantine.
    """
    if not (os.path.isdir(path) and _begun(path)):
        check_store(path)
    with closing(StoreLock(path)):
        time = _begun(path)
        if time:
            _swap(path, time)
            with open(os.path.join(path, _QUARANTINE + time, REPORT_NAME), encoding="utf-8") as file:
                return decode_json(file.read(), dict[str, object])
        examined = examine(path, progress)  # refuses a store whose wiring is on a server
        if examined.is_sound:
            return examined.report
        time = datetime.fromtimestamp(clock.wall_us() // 1_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
        building = os.path.join(path, _SALVAGED + time)
        for place in (building, os.path.join(path, _QUARANTINE + time)):
            if os.path.lexists(place):
                raise CairnError(place, "it exists already", "try again in a second")
        examined.report.salvaged = path
        build(examined, building, clock, progress)
        _rename(path, os.path.join(_SALVAGED + time, QUARANTINE_NAME), _QUARANTINE + time)
        _swap(path, time)
        return examined.report


def is_interrupted(path: str) -> bool:
    """Return whether a salvage in place was interrupted at *path*, which the next one completes."""
    return os.path.isdir(path) and bool(_begun(path))


def _begun(path: str) -> str:
    """Return the time of an interrupted salvage that has moved the damaged journal away; "" without one."""
    for name in RealDirectory(path).names():
        time = name.removeprefix(_SALVAGED)
        waits = os.path.lexists(os.path.join(path, name, JOURNAL_NAME))
        if time == name or not is_complete(os.path.join(path, _QUARANTINE + time)):
            continue
        if not (waits and os.path.lexists(os.path.join(path, JOURNAL_NAME))):
            return time
    return ""


def _swap(path: str, time: str) -> None:
    new, quarantine = _SALVAGED + time, _QUARANTINE + time
    for name in _PARTS:
        is_damaged = os.path.lexists(os.path.join(path, new, WIRING_NAME))  # the new wiring is the first to move in
        if is_damaged and os.path.lexists(os.path.join(path, name)):
            _rename(path, name, os.path.join(quarantine, name))
    for name in (WIRING_NAME, JOURNAL_NAME):
        if os.path.lexists(os.path.join(path, new, name)):
            _rename(path, os.path.join(new, name), name)
    with disk_errors(os.path.join(path, new), "remove"):
        shutil.rmtree(os.path.join(path, new))  # its locks, and its checkpoint, which is made again
    RealDirectory(path).sync()


def _rename(path: str, old: str, name: str) -> None:
    """Move *old* in the store to *name*, durably."""
    with disk_errors(os.path.join(path, old), f"rename to {name}"):
        os.rename(os.path.join(path, old), os.path.join(path, name))
    for place in {os.path.dirname(name), os.path.dirname(old)}:
        RealDirectory(os.path.join(path, place)).sync()
