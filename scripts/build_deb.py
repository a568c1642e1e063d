"""Build the Debian package: `make deb`, or `python scripts/build_deb.py dist --wheel dist/*.whl`.

The package contains a virtual environment of Debian's Python in /usr/lib/cairnmq, created from wheels. First, wheels
listed in `packaging/requirements.lock` are collected in a directory and their hashes are checked, which requires a
package index, or a directory of wheels (`--wheels`). Then dpkg-buildpackage runs offline with `packaging/debian/rules`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from build_dist import ROOT, epoch_s

PACKAGING = ROOT / "packaging"
PYTHON = "/usr/bin/python3"
_CHANGELOG = """cairnmq ({version}) unstable; urgency=medium

  * Changes: /usr/share/doc/cairnmq/CHANGELOG.md.gz

 -- CairnMQ maintainers <maintainers@cairnmq.invalid>  {time:%a, %d %b %Y %H:%M:%S} +0000
"""


def pip(*words: str | Path) -> None:
    """Run pip of this environment for Debian's Python."""
    command = [sys.executable, "-m", "pip", "--python", PYTHON, *map(str, words)]
    subprocess.run(command, check=True)


def prepare(tree: Path, wheel: Path, wheels: Path | None) -> None:
    """Create the source tree of the package."""
    shutil.copytree(PACKAGING / "debian", tree / "debian")
    if wheels is None:
        lock = PACKAGING / "requirements.lock"
        # separate cache, as a wheel built by another Python may be linked against the libraries of that Python
        cache = ("--cache-dir", ROOT / "build/pip-cache-deb")
        pip("wheel", "--quiet", "--require-hashes", "--requirement", lock, "--wheel-dir", tree / "wheels", *cache)
    else:
        shutil.copytree(wheels, tree / "wheels")
    shutil.copy(wheel, tree / "wheels")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    time = datetime.fromtimestamp(epoch_s(), UTC)
    (tree / "debian/changelog").write_text(_CHANGELOG.format(version=f"{version}-1", time=time))
    (tree / "debian/source").mkdir()
    (tree / "debian/source/format").write_text("3.0 (quilt)\n")
    (tree / "debian/cairnmq.docs").write_text("CHANGELOG.md\n")
    (tree / "debian/cairnmq.examples").write_text("alerts.yml\n")
    for path in (ROOT / "CHANGELOG.md", ROOT / "monitoring/prometheus/alerts.yml"):
        shutil.copy(path, tree)
    subprocess.run([sys.executable, ROOT / "scripts/man_pages.py", tree / "man"], check=True)
    (tree / "completions").mkdir()
    program = Path(sys.executable).with_name("cairnmq")
    for shell in ("bash", "zsh", "fish"):
        with (tree / f"completions/cairnmq.{shell}").open("w") as script:
            subprocess.run([program, "completion", shell], check=True, stdout=script)


def main() -> None:
    """Parse the command line and build the package."""
    parser = argparse.ArgumentParser(description="Build the Debian package.")
    parser.add_argument("target", type=Path, help="directory of the package")
    parser.add_argument("--wheel", type=Path, required=True, help="wheel of CairnMQ")
    parser.add_argument("--wheels", type=Path, help="directory with the wheels of all dependencies")
    parser.add_argument("--compression", default="xz", help="xz, gzip, zstd or none")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/deb", help="directory for the build")
    given = parser.parse_args()
    place = given.build_dir
    shutil.rmtree(place, ignore_errors=True)
    tree = place / "cairnmq"
    tree.mkdir(parents=True)
    prepare(tree, given.wheel, given.wheels)
    environment = {
        **os.environ, "SOURCE_DATE_EPOCH": str(epoch_s()), "COMPRESSION": given.compression,
        "PIP": f"{sys.executable} -m pip",
    }  # fmt: skip
    subprocess.run(["dpkg-buildpackage", "-b", "-us", "-uc", "-d"], check=True, cwd=tree, env=environment)
    given.target.mkdir(parents=True, exist_ok=True)
    for package in place.glob("*.deb"):
        shutil.copy(package, given.target)


if __name__ == "__main__":
    main()
