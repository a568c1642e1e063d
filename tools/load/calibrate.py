"""Calibration of a disk: appends and fdatasyncs in a directory, timed, and the conclusions.

The file that is written has no name any more when the first byte goes into it, so nothing is left behind, whatever ends
the process. Each size is tried on blocks that were written with zeros and synced before, as containers are, and on such
as are only allocated, in turn, so that other load on the disk falls on both.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from ...base.disk.real import disk_errors
from ...base.errors import CairnError
from ...base.texts import counted
from ..inspect.journal_check import Progress

SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
"""The sizes of one append; a block has at most the size of a container."""
_FILE_BYTES = 32 << 20
"""The size of the file of each kind, which is overwritten cyclically."""
_LEAST = 5
"""The minimum number of appends of each size and kind, regardless of the time."""
_IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_FAST_FLASH_US = 15.0
_FAST_ROTATION_US = 1000.0
"""Faster than that a sync that reaches such a disk is not."""


class Timing(NamedTuple):
    """Appends of one size into blocks of one kind, each synced."""

    kind: str
    """"written before" or "allocated"."""
    size_bytes: int
    times_us: list[float]
    """Sorted."""

    def percentile_us(self, percent: float) -> float:
        return self.times_us[min(len(self.times_us) - 1, int(len(self.times_us) * percent / 100))]

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes * len(self.times_us) / (sum(self.times_us) / 1e6)

    def fields(self) -> dict[str, object]:
        """Return the percentiles as the fields of a JSON object."""
        return {
            "kind": self.kind, "size_bytes": self.size_bytes, "appends": len(self.times_us),
            **{f"p{percent}_us": round(self.percentile_us(percent), 1) for percent in (50, 90, 99)},
            "max_us": round(self.times_us[-1], 1), "bytes_per_s": round(self.bytes_per_s),
        }  # fmt: skip


@dataclass
class Calibration:
    """The measurements, and the conclusions."""

    directory: str
    file_system: str = ""
    mount_point: str = ""
    mount_options: str = ""
    device: str = ""
    rotational: bool | None = None
    write_cache: str = ""
    timings: list[Timing] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    suggestions: list[tuple[str, str]] = field(default_factory=list)
    """An option of `cairnmq broker`, and why."""
    complete: bool = False

    def of(self, kind: str) -> dict[int, Timing]:
        return {timing.size_bytes: timing for timing in self.timings if timing.kind == kind}

    def fields(self) -> dict[str, object]:
        """Return the timings of a disk as the fields of a JSON object."""
        return vars(self) | {
            "timings": [timing.fields() for timing in self.timings],
            "suggestions": [{"option": option, "reason": reason} for option, reason in self.suggestions],
        }


WRITTEN, ALLOCATED = "written before", "allocated"


def calibrate(found: Calibration, seconds: float, progress: Progress) -> None:
    """Fill *found* in about *seconds*. Raises `DiskError` for what can't be written. It is as true as far as it got."""
    describe(found)
    with _nameless(found.directory) as written, _nameless(found.directory) as allocated:
        _fill(written, found.directory)
        each_s = seconds / len(SIZES)
        fresh = _FILE_BYTES  # in the allocated file: blocks that were never written
        for number, size in enumerate(SIZES):
            progress("appending", number, len(SIZES))
            times: dict[str, list[float]] = {WRITTEN: [], ALLOCATED: []}
            data = os.urandom(size)
            end_s = time.monotonic() + each_s
            at = 0
            while time.monotonic() < end_s or len(times[WRITTEN]) < _LEAST:
                if fresh + size > _FILE_BYTES:
                    with disk_errors(found.directory, "allocate"):
                        os.ftruncate(allocated, 0)
                        os.posix_fallocate(allocated, 0, _FILE_BYTES)
                        os.fsync(allocated)
                    fresh = 0
                times[WRITTEN].append(_append(written, data, at, found.directory))
                times[ALLOCATED].append(_append(allocated, data, fresh, found.directory))
                at = (at + size) % (_FILE_BYTES - SIZES[-1])
                fresh += size
            found.timings += [Timing(kind, size, sorted(times_us)) for kind, times_us in times.items()]
    _judge(found)
    found.complete = True


def _append(file: int, data: bytes, offset: int, directory: str) -> float:
    """Microseconds until *data* was on the disk."""
    with disk_errors(directory, "write"):
        begun_ns = time.perf_counter_ns()
        os.pwrite(file, data, offset)
        os.fdatasync(file)
        return (time.perf_counter_ns() - begun_ns) / 1000


@contextmanager
def _nameless(directory: str) -> Iterator[int]:
    """A file in *directory* that goes with its descriptor.

    It never has a name where the file system has O_TMPFILE; elsewhere a kill between its creation
    and the removal of its name leaves it, empty.
    """
    with disk_errors(directory, "create a file"):
        file = tempfile.TemporaryFile(prefix=".cairnmq-calibrate-", dir=directory, buffering=0)  # noqa: SIM115
    with file:
        yield file.fileno()


def _fill(file: int, directory: str) -> None:
    zeros = bytes(1 << 20)
    with disk_errors(directory, "write"):
        for offset in range(0, _FILE_BYTES, len(zeros)):
            os.pwrite(file, zeros, offset)
        os.fsync(file)


def describe(found: Calibration) -> None:
    """Fill in the file system and the device of the directory. Raises `CairnError` if it is none."""
    path = os.path.realpath(found.directory)
    if not os.path.isdir(path):
        raise CairnError(found.directory, "not a directory", "name the directory that the store is to be in")
    device = os.stat(path).st_dev
    for fields, rest in _mounts():
        mount_point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
        inside = path == mount_point or path.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(found.mount_point):
            found.mount_point, found.mount_options = mount_point, fields[5]
            found.file_system, found.device = rest[0], rest[1]
            if len(rest) > 2:
                found.mount_options += "," + rest[2]
    place = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    for queue in (f"{place}/queue", f"{place}/../queue"):
        rotational = _read(f"{queue}/rotational")
        if rotational:
            found.rotational = rotational == "1"
            found.write_cache = _read(f"{queue}/write_cache")
            break
    backing = _read(f"{place}/loop/backing_file")
    if backing:
        found.device += f" (a file: {backing})"


def _mounts() -> Iterator[tuple[list[str], list[str]]]:
    """The fields of each line of mountinfo before and behind the dash."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                before, _, behind = line.partition(" - ")
                yield before.split(), behind.split()
    except OSError:
        return


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else ""
    except OSError:
        return ""


def _judge(found: Calibration) -> None:
    written = found.of(WRITTEN)
    least_us = written[SIZES[0]].percentile_us(50)
    if found.file_system in _IN_MEMORY:
        found.warnings.append(
            f"{found.file_system} is memory: nothing here survives a power cut or a restart of the machine; "
            "`--store memory` is honest about that"
        )
        return
    if found.rotational and least_us < _FAST_ROTATION_US:
        found.warnings.append(
            f"a sync of 4 KiB takes {least_us:.0f} us, and no rotating disk is so fast: the disk reports it early "
            "(a write cache without a battery, a virtual disk that ignores flushes), or has a cache that lasts"
        )
    elif least_us < _FAST_FLASH_US:
        found.warnings.append(
            f"a sync of 4 KiB takes {least_us:.0f} us, less than a flush of most disks: unless its cache survives a "
            "power cut, confirmed messages may not"
        )
    options = set(found.mount_options.split(","))
    if options & {"nobarrier", "barrier=0"}:
        found.warnings.append("the file system is mounted without barriers: a power cut may take what was synced")
    if found.write_cache == "write through" and found.rotational:
        found.warnings.append("the disk reports no write cache")
    found.suggestions += suggest(written)


def suggest(written: dict[int, Timing]) -> list[tuple[str, str]]:
    """Options that the times of appends, by size, speak for."""
    found = []
    latency_s = min(timing.percentile_us(50) for timing in written.values()) / 1e6
    best = max(written.values(), key=lambda timing: timing.bytes_per_s)
    rate = 1 / max(1e-9, 1 / best.bytes_per_s - latency_s / best.size_bytes)  # without the wait for the sync
    rate = min(rate, 16e9)
    wanted = latency_s * rate * _SYNCS_PER_CONTAINER
    size = 1 << max(0, int(wanted) - 1).bit_length()
    if size > _DEFAULT_CONTAINER_BYTES:
        size = min(size, _MOST_CONTAINER_BYTES)
        share = latency_s / (_DEFAULT_CONTAINER_BYTES / rate + latency_s)
        found.append((
            f"--container-size {size}",
            f"one more sync of {latency_s * 1e3:.2f} ms at the end of each 1 MiB container takes up to {share:.0%} of "
            f"the time at full load; only a new store takes another size",
        ))  # fmt: skip
    waiting = latency_s * rate / _DEFAULT_CONTAINER_BYTES
    if waiting > _DEFAULT_WRITE_BUFFERS:
        count, blocks = 2 * int(waiting), counted(round(waiting), "block")
        found.append((
            f"--max-write-buffers {count}",
            f"while one sync lasts, {blocks} of 1 MiB can gather; {_DEFAULT_WRITE_BUFFERS} may wait",
        ))  # fmt: skip
    return found


_SYNCS_PER_CONTAINER = 10
"""The minimum ratio of the time to fill a container to that of the additional sync when it is changed."""
_DEFAULT_CONTAINER_BYTES = 1 << 20
_MOST_CONTAINER_BYTES = 64 << 20
_DEFAULT_WRITE_BUFFERS = 10
