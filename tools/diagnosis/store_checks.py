"""Checks of a store directory: file system, free space, permissions, and the latency of syncs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from ...base.errors import CairnError, SharedDirectory
from ...base.secret_files import exposure
from ...base.texts import counted
from ...store.directory.kind import kind_of
from ...store.directory.lock import is_in_use
from ...store.directory.refusals import refuse_shared
from ..inspect.format_text import size_text
from ..inspect.journal_check import Progress
from ..load.calibrate import SIZES, WRITTEN, Calibration, calibrate, describe
from .report import Finding, Severity

_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "fuse.glusterfs"}
_LAYERED = {"overlay", "aufs"}
_IN_MEMORY = {"tmpfs", "ramfs"}
_UNSAFE_OPTIONS = {"nobarrier", "barrier=0", "data=writeback"}
LITTLE_BYTES, LOW_BYTES = 256 << 20, 2 << 30
SLOW_SYNC_US, BAD_SYNC_US = 10_000, 50_000
_LEAST_INODES = 10_000


def check_store(directory: str, seconds: float, progress: Progress) -> Iterator[Finding]:
    """Check the store in *directory*, or the place of a new one; syncs are measured for *seconds*, if these are not 0.

    Nothing of a store is changed. The measurement writes two unnamed files of 32 MiB.
    """
    if not os.path.isdir(directory):
        text = f"{directory}: no such directory"
        yield Finding("store", Severity.ERROR, text, "create it, or name the store directory of the broker")
        return
    kind = kind_of(directory)
    held = " in use by a broker" if is_in_use(directory) else ""
    yield Finding("store", Severity.OK, f"{directory}: {f'store of kind {kind}' if kind else 'no store yet'}{held}")
    found = Calibration(directory)
    describe(found)
    yield check_file_system(found.file_system, found.mount_options, found.mount_point)
    usage = os.statvfs(directory)
    yield check_space(usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize)
    if usage.f_files > 0 and usage.f_favail < _LEAST_INODES:
        text = f"only {usage.f_favail} inodes are free"
        yield Finding("space", Severity.WARNING, text, "remove files, or use a file system with more inodes")
    yield from check_modes(directory)
    if not os.access(directory, os.W_OK):
        yield Finding("disk", Severity.ERROR, f"{directory} is not writable", "change its owner to the broker's user")
    elif seconds:
        yield from _check_syncs(directory, seconds, progress)


def check_file_system(name: str, options: str, mount_point: str) -> Finding:
    place = f"{name or 'unknown file system'} at {mount_point}"
    if name in _IN_MEMORY:
        text = f"{place}: nothing survives a restart of the machine"
        return Finding("file system", Severity.ERROR, text, "move the store to a disk")
    if name in _REMOTE:
        text = f"{place}: locks and syncs of network file systems are slow, or not safe"
        return Finding("file system", Severity.WARNING, text, "use a local disk, and a cluster for availability")
    if name in _LAYERED:
        text = f"{place}: the store is in a container's own layer, and is deleted with it"
        return Finding("file system", Severity.WARNING, text, "mount a volume at the store directory")
    if unsafe := _UNSAFE_OPTIONS.intersection(options.split(",")):
        text = f"{place}, mounted with {', '.join(sorted(unsafe))}: a power cut may lose what was synced"
        return Finding("file system", Severity.ERROR, text, "mount it without this option")
    return Finding("file system", Severity.OK, place)


def check_space(free_bytes: int, all_bytes: int) -> Finding:
    text = f"{size_text(free_bytes)} of {size_text(all_bytes)} are free"
    if free_bytes >= LOW_BYTES:
        return Finding("space", Severity.OK, text)
    severity = Severity.ERROR if free_bytes < LITTLE_BYTES else Severity.WARNING
    return Finding("space", severity, text, "extend the disk, or find what holds space: `cairnmq explain space STORE`")


def check_modes(directory: str) -> Iterator[Finding]:
    """Check owner and permissions of the store directory and its files."""
    try:
        refuse_shared(directory)
    except SharedDirectory as error:  # a broker refuses it, too
        yield Finding("permissions", Severity.ERROR, f"{directory}: {error.reason}", error.remedy)
    owner = os.stat(directory).st_uid
    names = ("", *sorted(os.listdir(directory)))
    open_to_others = [name for name in names if _mode(directory, name) & (stat.S_IRWXO | stat.S_IWGRP)]
    foreign = [name for name in names if os.lstat(os.path.join(directory, name)).st_uid != owner]
    if open_to_others:
        text = f"others may read or change {_listed(directory, open_to_others)}: messages are in these files"
        yield Finding("permissions", Severity.WARNING, text, f"chmod -R go-rwx {directory}")
    if foreign:
        text = f"{_listed(directory, foreign)} belong to another user than {directory}"
        yield Finding("permissions", Severity.WARNING, text, "chown them to the user of the broker")
    if not open_to_others and not foreign:
        yield Finding("permissions", Severity.OK, "only the owner has access to the store")


def check_secret_files(paths: Iterable[str], *, is_secret: bool = True) -> Iterator[Finding]:
    """Check that files that decide about access exist, and are as protected as a broker requires."""
    for path in paths:
        reason, remedy = exposure(path, is_secret=is_secret)
        if not os.path.exists(path):
            yield Finding("permissions", Severity.ERROR, f"{path}: no such file", "correct the option's value")
        elif reason:
            yield Finding("permissions", Severity.ERROR, f"{path}: {reason}", remedy)
        else:
            yield Finding("permissions", Severity.OK, f"{path} is {'private' if is_secret else 'protected'}")


def _mode(directory: str, name: str) -> int:
    mode = os.lstat(os.path.join(directory, name)).st_mode
    return 0 if stat.S_ISLNK(mode) else mode


def _listed(directory: str, names: list[str]) -> str:
    shown = ", ".join(name or directory for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {counted(len(names) - 3, 'more file')}"


def _check_syncs(directory: str, seconds: float, progress: Progress) -> Iterator[Finding]:
    found = Calibration(directory)
    try:
        calibrate(found, seconds, progress)
    except CairnError as error:
        yield Finding("disk", Severity.ERROR, f"syncs cannot be measured: {error}", "free 64 MiB, or use --seconds 0")
        return
    timing = found.of(WRITTEN)[SIZES[0]]
    yield check_sync_times(timing.percentile_us(50), timing.percentile_us(99))
    for warning in found.warnings:
        yield Finding("disk", Severity.WARNING, warning, "see `cairnmq calibrate`")


def check_sync_times(median_us: float, high_us: float) -> Finding:
    text = f"a sync of 4 KiB takes {median_us / 1000:.2f} ms (median), {high_us / 1000:.2f} ms (99th percentile)"
    if high_us < SLOW_SYNC_US:
        return Finding("disk", Severity.OK, text)
    severity = Severity.ERROR if median_us >= BAD_SYNC_US else Severity.WARNING
    return Finding("disk", severity, text, "confirmations wait for syncs: use a faster disk, or one without other load")
