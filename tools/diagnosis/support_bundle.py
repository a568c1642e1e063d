"""A support bundle: a compressed archive of diagnostic data, without secrets and without messages.

| member | contents |
|---|---|
| `manifest.json` | the time, the members, and what was left out and why |
| `versions.json` | all installed packages, the interpreter and the system |
| `doctor.json` | the findings of `cairnmq doctor` |
| `configuration.json` | the options of the broker and their sources |
| `store.json` | names, sizes, modes and times of the files of the store; never their contents |
| `system/` | memory, mounts, limits and pressure of the system |
| `log.txt` | the end of the log of the broker |
| `metrics.txt` | a scrape of the metrics |

Every member passes `TextRedaction`.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from ...base.disk.real import disk_errors
from ...base.private_files import open_private
from .host_checks import versions
from .text_redaction import TextRedaction

LOG_BYTES = 4 << 20
"""The size of the end of a file that is included."""
METRICS_BYTES = 16 << 20
TIMEOUT_S = 10.0
MOST_FILES = 10_000
_SYSTEM = ("meminfo", "loadavg", "self/mountinfo", "self/limits", "self/cgroup", "pressure/io", "pressure/memory")


class SupportBundle:
    """An archive at *path*, which must not exist yet. A context manager; the file is private to its owner."""

    def __init__(self, path: str, redaction: TextRedaction) -> None:
        self._path = path
        self._redact = redaction
        self._left_out: dict[str, str] = {}
        self.members: list[str] = []

    def __enter__(self) -> SupportBundle:
        with disk_errors(self._path, "create"):
            self._file = open(self._path, "xb", opener=open_private)
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._tar.close()
        self._file.close()
        if kind is not None:
            os.unlink(self._path)

    def add(self, name: str, text: str) -> None:
        """Add a member without its secrets."""
        self._put(name, self._redact(text))

    def _put(self, name: str, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        member = tarfile.TarInfo(f"cairnmq-support/{name}")
        member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
        self._tar.addfile(member, io.BytesIO(data))
        self.members.append(name)

    def add_json(self, name: str, value: Any) -> None:
        """Add a JSON document whose texts are redacted one by one, so that it stays valid."""
        self._put(name, json.dumps(self._clean(value), indent=1, default=str) + "\n")

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, dict):
            return {str(name): self._clean(one) for name, one in value.items()}
        return [self._clean(one) for one in value] if isinstance(value, list | tuple) else value

    def add_system(self) -> None:
        """Add the versions of all packages, and the state of the system."""
        packages = {one.metadata["Name"]: one.version for one in distributions()}
        self.add_json("versions.json", versions() | {"packages": dict(sorted(packages.items()))})
        for name in _SYSTEM:
            self.add_file(f"system/{name.rpartition('/')[2]}.txt", f"/proc/{name}")

    def add_store(self, directory: str) -> None:
        """Add a list of the files below the store directory."""
        rows: list[dict[str, Any]] = []
        for path in sorted(Path(directory).rglob("*"))[:MOST_FILES]:
            found = path.lstat()
            rows.append({
                "name": str(path.relative_to(directory)), "size": found.st_size, "mode": f"{found.st_mode:o}",
                "uid": found.st_uid, "modified": datetime.fromtimestamp(found.st_mtime, UTC).isoformat(),
            })  # fmt: skip
        self.add_json("store.json", rows)

    def add_metrics(self, url: str) -> None:
        try:
            with urlopen(url, timeout=TIMEOUT_S) as answer:
                self.add("metrics.txt", answer.read(METRICS_BYTES).decode(errors="replace"))
        except (OSError, ValueError) as error:
            self.leave_out("metrics.txt", str(error))

    def add_file(self, name: str, path: str) -> None:
        """Add the end of the file at *path*, from the beginning of a line on."""
        try:
            with open(path, "rb") as file:
                begun = 0
                if os.fstat(file.fileno()).st_size > LOG_BYTES:
                    begun = file.seek(-LOG_BYTES, os.SEEK_END)
                data = file.read(LOG_BYTES)
        except OSError as error:
            self.leave_out(name, f"{path}: {error.strerror}")
            return
        self.add(name, (data.partition(b"\n")[2] if begun else data).decode(errors="backslashreplace"))

    def leave_out(self, name: str, reason: str) -> None:
        self._left_out[name] = reason

    def finish(self, notes: Iterable[str]) -> None:
        """Add the manifest."""
        document = {"created": datetime.now(UTC).isoformat(), "members": self.members, "left out": self._left_out}
        self.add_json("manifest.json", document | {"notes": list(notes)})
