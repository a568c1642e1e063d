"""Directory trees with separate mounts and processes, all of which are removed when the test process ends.

The test process holds one end of a pipe. The other end is the standard input of a shell in a separate session, which
runs the first process of the namespaces. When the test process closes the pipe, or the kernel does because the test
process ended by Ctrl-C, SIGTERM or SIGKILL, the first process ends. The kernel then ends the other processes of the
namespaces and removes the mounts, and the shell removes the directory. A directory whose shell was killed, too, is
removed when the next sandbox is created.

The tree is in memory if there is enough of it: a package manager syncs often, and a disk that is busy with other tests
took longer to remove the files than to write them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND_S = 2400.0
NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private")
"""Command that creates the namespaces, with separate IPC: systemd removes the IPC objects of a service's user, whose ID
is that of another user on the host."""
_KEEP = 'place=$1; shift; "$@"; exec rm -rf --one-file-system -- "$place"'
"""Script that removes the directory at its end; an inherited, locked descriptor marks the directory as in use."""
_FIRST = "read -r pid rest < /proc/self/stat; echo $pid; exec cat"  # prints the PID in the host's /proc


_MEMORY_KIB = 8 << 20
"""Available memory from which the tree is in memory. The tree with all extras is a third of this size."""


class Sandbox:
    """A new directory below *parent* with a tree in its subdirectory `root`, and separate namespaces."""

    def __init__(self, parent: Path, name: str) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self.place = parent / f"{name}-{os.getpid()}"
        with _locked(parent):
            _remove_leftovers(parent)
            self.place.mkdir()
            with _locked(self.place) as descriptor:
                self._keeper = subprocess.Popen(
                    ["sh", "-c", _KEEP, "sh", str(self.place), *NAMESPACES, "sh", "-c", _FIRST],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
                    pass_fds=[descriptor],
                )  # fmt: skip
        assert self._keeper.stdout is not None
        self._first_pid = self._keeper.stdout.readline().strip()
        if not self._first_pid:
            self.close()
            raise AssertionError(f"{self.place}: the namespaces could not be made")
        self.inner = self.place / "root"
        """The path of the tree in the namespaces."""
        self.root = Path(f"/proc/{self._first_pid}/root{self.inner}")
        """The path of the tree on the host."""
        self.inner.mkdir()
        if _available_memory_kib() >= _MEMORY_KIB:
            try:
                self.run("mount", "-t", "tmpfs", "-o", f"mode=755,size={_MEMORY_KIB}K", "tmpfs", str(self.inner))
            except BaseException:
                self.close()
                raise

    def command(self, *words: str) -> list[str]:
        """Return a command that runs *words* in the namespaces."""
        return ["nsenter", "-t", self._first_pid, "-m", "-p", "-i", *words]

    def run(self, *words: str) -> None:
        subprocess.run(self.command(*words), check=True, stdin=subprocess.DEVNULL, timeout=COMMAND_S)

    def close(self) -> None:
        """End the processes; remove the mounts and the directory."""
        self._keeper.communicate()


def _available_memory_kib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 0)


@contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """Hold the lock of a directory, until the descriptor is closed here and in all processes that inherited it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_leftovers(parent: Path) -> None:
    """Remove the directories that no sandbox uses. The caller holds the lock of *parent*."""
    for directory in parent.iterdir():
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # the sandbox was closed in the meantime
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(directory)
        finally:
            os.close(descriptor)
