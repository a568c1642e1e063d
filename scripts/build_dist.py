"""Build the wheel and the source distribution reproducibly: the same commit results in the same bytes.

Run `make dist`, or `python scripts/build_dist.py dist`. The time of all files in both archives is `SOURCE_DATE_EPOCH`,
or the time of the commit, or the first day of 1980 without a repository. `packaging/build-constraints.txt` determines
the version of setuptools. Further arguments are passed to `python -m build`.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST_EPOCH_S = 315532800
"""The earliest time that a zip file can store."""


def epoch_s() -> int:
    """Return the time for the files in the archives."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return FIRST_EPOCH_S
    return int(done.stdout) if done.returncode == 0 else FIRST_EPOCH_S


def normalize(archive: Path, time_s: int) -> None:
    """Rewrite a tar.gz file with sorted names, a single time, no owners, and permissions independent of the umask."""
    with tarfile.open(archive) as source:
        members = sorted(source.getmembers(), key=lambda member: member.name)
        contents = [source.extractfile(member) if member.isfile() else None for member in members]
        complete = archive.with_suffix(".new")
        with (
            complete.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=time_s) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
        ):
            for member, content in zip(members, contents, strict=True):
                member.mtime, member.uid, member.gid, member.uname, member.gname = time_s, 0, 0, "", ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                member.pax_headers = {}
                target.addfile(member, content)
    complete.replace(archive)


def main(target: Path, *options: str) -> None:
    """Build both archives in *target*."""
    time_s = epoch_s()
    os.umask(0o022)
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(time_s),
        "PIP_CONSTRAINT": str(ROOT / "packaging/build-constraints.txt"),
    }
    command = [sys.executable, "-m", "build", "--outdir", str(target), *options, str(ROOT)]
    checkout = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(checkout, fcntl.LOCK_EX)  # setuptools collects files in a directory of the checkout
        subprocess.run(command, check=True, env=environment)
    finally:
        os.close(checkout)
    for archive in target.glob("*.tar.gz"):
        normalize(archive, time_s)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), *sys.argv[2:])
