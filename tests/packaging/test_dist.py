"""Tests that wheel and source distribution are reproducible and complete, and that dependencies are locked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import urllib.request
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.conftest import Tell
from tests.harness.thorough import THOROUGH

from .conftest import DEADLINE_S, PACKAGING, ROOT, run

thorough = pytest.mark.skipif(not THOROUGH, reason="for thorough runs (CAIRN_THOROUGH=1)")
_PINNED = re.compile(r"^([a-z0-9-]+)==([^ ]+)(?: ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)*)", re.M)


def locked() -> dict[str, str]:
    """Return the names and versions in the lock file."""
    return {name: version for name, version, _ in _PINNED.findall((PACKAGING / "requirements.lock").read_text())}


def test_lock_meets_every_requirement() -> None:
    """The lock file satisfies all requirements; `make lock` updates it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = project["dependencies"][:]
    for extra in (PACKAGING / "extras.txt").read_text().split():
        texts += project["optional-dependencies"][extra]
    requirements = [Requirement(text) for text in texts if not text.startswith("cairnmq[")]
    versions = locked()
    assert [str(one) for one in requirements if one.name not in versions] == []
    assert [str(one) for one in requirements if Version(versions[one.name]) not in one.specifier] == []


def test_lock_has_a_hash_for_every_version() -> None:
    text = (PACKAGING / "requirements.lock").read_text()
    assert [name for name, _, hashes in _PINNED.findall(text) if not hashes] == []
    assert len(_PINNED.findall(text)) == len(re.findall(r"^[a-z0-9]", text, re.M))


def test_every_file_of_the_console_is_packed() -> None:
    """All static console files match the patterns of setuptools, which do not include new subfolders."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    console = ROOT / "console"
    packed = {path for pattern in patterns["cairnmq.console"] for path in console.glob(pattern)}
    assert {path for path in (console / "static").rglob("*") if path.is_file()} - packed == set()


@thorough
def test_two_builds_are_equal_byte_by_byte(dist: Path, tmp_path: Path) -> None:
    """A second build from a copy with other times, permissions and umask is identical."""
    copy, second = tmp_path / "copy", tmp_path / "second"
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name, follow_symlinks=False)
            if not (copy / name).is_symlink():
                os.utime(copy / name, (1, 1))
                (copy / name).chmod(0o666)
    script = f"umask 0; exec {sys.executable} {copy}/scripts/build_dist.py {second} --no-isolation"
    run("sh", "-c", script, SOURCE_DATE_EPOCH="1700000000")
    first = {path.name: path.read_bytes() for path in dist.iterdir()}
    assert sorted(name.rpartition(".")[2] for name in first) == ["gz", "whl"]
    assert {path.name for path in second.iterdir()} == set(first)
    assert [path.name for path in second.iterdir() if path.read_bytes() != first[path.name]] == []


@thorough
def test_sbom_lists_everything_that_is_locked(tools: Path, tmp_path: Path) -> None:
    made = tmp_path / "sbom.json"
    arguments = ("--pyproject", "pyproject.toml", "--output-reproducible", "--output-file", made)
    run(tools / "cyclonedx-py", "requirements", *arguments, "packaging/requirements.lock")
    sbom = json.loads(made.read_text())
    assert sbom["metadata"]["component"]["name"] == "cairnmq"
    assert {(one["name"], one["version"]) for one in sbom["components"]} >= set(locked().items())
    assert all(one["externalReferences"][0]["hashes"] for one in sbom["components"])


@thorough
def test_no_vulnerability_is_known(tools: Path, tell: Tell) -> None:
    command = [str(tools / "pip-audit"), "--disable-pip", "--require-hashes", "-r", "packaging/requirements.lock"]
    done = subprocess.run([*command, "--format", "json"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    reason = done.stderr.strip()[-200:]
    if "vulnerabilities" in done.stderr or done.returncode == 0:
        listed = json.loads(done.stdout)["dependencies"]
        audited = [one for one in listed if "skip_reason" not in one]
        if audited:
            assert [(one["name"], one["vulns"]) for one in audited if one["vulns"]] == []
            return
        reason = listed[0]["skip_reason"]
    tell("known vulnerabilities are not checked: the data of pip-audit can't be reached here")
    pytest.skip(f"the data of pip-audit can't be reached: {reason}")


def page_of_console(*command: str | Path) -> str:
    """Return the first page of the console that *command* serves."""
    words = [str(word) for word in command]
    process = subprocess.Popen([*words, "console", "--http-port", "0"], stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert url, said
        with urllib.request.urlopen(url[0], timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())
    finally:
        process.terminate()
        process.communicate()
        watchdog.cancel()


@thorough
def test_pipx_installs_the_wheel_with_the_console(tools: Path, wheels: Path, dist: Path, tmp_path: Path) -> None:
    homes = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_NO_COMPILE": "1"}
    [wheel] = dist.glob("*.whl")
    run(tools / "pipx", "install", "--python", sys.executable, f"{wheel}[console]", **homes, **offline)
    assert run(tmp_path / "bin/cairnmq", "--version").startswith("cairnmq, version ")
    assert "<title>" in page_of_console(tmp_path / "bin/cairnmq")


@thorough
def test_uvx_runs_the_wheel_with_the_console(tools: Path, wheels: Path, dist: Path, tmp_path: Path) -> None:
    [wheel] = dist.glob("*.whl")
    offline = ("--python", sys.executable, "--no-index", "--find-links", wheels, "--cache-dir", tmp_path)
    said = run(tools / "uvx", *offline, "--from", wheel, "cairnmq", "--version")
    assert "cairnmq, version " in said
    assert "<title>" in page_of_console(tools / "uvx", *offline, "--from", f"{wheel}[console]", "cairnmq")
