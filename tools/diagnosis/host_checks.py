"""Checks of the host: versions, limits of the process, and the clock."""

from __future__ import annotations

import ctypes
import platform
import resource
import struct
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from ... import __version__
from .report import Finding, Severity

FEW_FILES, SMALL_LIMIT = 1024, 16_384
_SLOW_CLOCKS = {"hpet", "acpi_pm", "pit", "jiffies"}
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_TIMEX_BYTES, _STATUS_AT, _UNSYNCHRONIZED = 256, 40, 0x40
"""The size of `struct timex` with a reserve, the offset of its status on 64-bit Linux, and the flag STA_UNSYNC."""


def check_host() -> Iterator[Finding]:
    """Check this machine and the limits of this process, which a broker started from here would have."""
    yield Finding("versions", Severity.OK, ", ".join(f"{name} {number}" for name, number in versions().items()))
    yield check_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield check_file_size(resource.getrlimit(resource.RLIMIT_FSIZE)[0])
    yield check_clock_source(_CLOCK.read_text().strip() if _CLOCK.exists() else "")
    yield check_synchronized(_clock_status())


def versions() -> dict[str, str]:
    """Return the versions of the product, the interpreter, the system, and the libraries that matter most."""
    libraries = {name: version(name) for name in ("python-qpid-proton", "sqlalchemy", "cryptography")}
    return {"cairnmq": __version__, "Python": platform.python_version(),
            platform.system(): platform.release(), **libraries}  # fmt: skip


def check_files(limit: int) -> Finding:
    if limit == resource.RLIM_INFINITY or limit >= SMALL_LIMIT:
        return Finding("limits", Severity.OK, f"open files: {'unlimited' if limit < 0 else limit}")
    severity = Severity.ERROR if limit < FEW_FILES else Severity.WARNING
    text = f"open files are limited to {limit}; each connection needs one, each journal container may need one"
    return Finding("limits", severity, text, "raise the limit: LimitNOFILE=65536 in the unit, or `ulimit -n 65536`")


def check_file_size(limit: int) -> Finding:
    if limit == resource.RLIM_INFINITY:
        return Finding("limits", Severity.OK, "size of files: unlimited")
    text = f"files are limited to {limit} bytes; a write beyond it fails"
    return Finding("limits", Severity.WARNING, text, "remove the limit: `ulimit -f unlimited`")


def check_clock_source(name: str) -> Finding:
    if name not in _SLOW_CLOCKS:
        return Finding("clock", Severity.OK, f"clock source: {name or 'unknown'}")
    text = f"clock source {name}: each reading is a system call"
    return Finding("clock", Severity.WARNING, text, "use tsc or kvm-clock if the machine has it (clocksource=tsc)")


def check_synchronized(status: int | None) -> Finding:
    """Check the kernel's status of the clock; None if it is unknown."""
    if status is None:
        return Finding("clock", Severity.OK, "synchronization: unknown on this system")
    if not status & _UNSYNCHRONIZED:
        return Finding("clock", Severity.OK, "the clock is synchronized")
    text = "the clock is not synchronized: expiry times, points in time and certificates depend on it"
    return Finding("clock", Severity.WARNING, text, "run chrony or systemd-timesyncd")


def _clock_status() -> int | None:
    if sys.platform != "linux" or struct.calcsize("P") != 8:
        return None
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # mode 0: reads only
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return None
    return int(struct.unpack_from("i", timex, _STATUS_AT)[0])
