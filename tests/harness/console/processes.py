"""The processes that a broker and its console have started."""

from __future__ import annotations

from pathlib import Path


def descendants(pid: int, module: str) -> list[int]:
    """Return the processes below *pid* that run *module*."""
    parents: dict[int, int] = {}
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
            if module.encode() in path.with_name("cmdline").read_bytes():
                found.append(int(path.parent.name))
        except (OSError, IndexError):
            continue
    return [one for one in found if pid in _ancestors(parents, one)]


def _ancestors(parents: dict[int, int], pid: int) -> list[int]:
    found = []
    while pid := parents.get(pid, 0):
        found.append(pid)
    return found
