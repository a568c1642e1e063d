"""Tests of the command `cairnmq users`."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.harness.process import CAIRNMQ, DEADLINE_S, broker


def users(path: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [CAIRNMQ, "users", *arguments, "--users-file", str(path)]
    return subprocess.run(command, input=said, capture_output=True, text=True, timeout=DEADLINE_S)


def refused(result: subprocess.CompletedProcess[str], status: int = 1) -> str:
    assert result.returncode == status, result
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("cairnmq: ")
    return result.stderr


def test_users_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "users"
    assert users(path, "add", "anna", said="one stone\n").stdout == f"added anna to {path}\n"
    assert users(path, "add", "ben", "--iterations", "20000", said="another stone").returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "stone" not in path.read_text()
    assert users(path, "list").stdout == "anna\nben\n"
    assert json.loads(users(path, "list", "--json").stdout)[1] == {"name": "ben", "iterations": 20000}
    assert users(path, "list", "--output", "csv").stdout.splitlines()[::2] == ["name,iterations", "ben,20000"]
    assert json.loads(users(path, "check", "--json").stdout) == {"file": str(path), "users": 2}
    checked = users(path, "check", "anna", "--json", said="one stone\n")
    assert json.loads(checked.stdout) == {"file": str(path), "users": 2, "password_of": "anna"}
    assert users(path, "check", "anna", said="one stone\n").stdout == "that is the password of anna\n"
    assert "that is not the password" in refused(users(path, "check", "anna", said="another stone\n"))
    assert users(path, "password", "anna", said="a third stone\n").returncode == 0
    assert users(path, "check", "anna", said="a third stone\n").returncode == 0
    assert users(path, "remove", "anna", "--yes").returncode == 0
    assert users(path, "list").stdout == "ben\n"
    assert users(path, "check").stdout == f"{path}: OK, 1 user\n"


@pytest.mark.parametrize("command", ["add", "password"])
def test_short_password_is_used_and_warned_of(tmp_path: Path, command: str) -> None:
    path = tmp_path / "users"
    added = users(path, "add", "anna", said="twelve-chars\n")
    assert (added.returncode, added.stderr) == (0, "")
    changed = users(path, command, "anna" if command == "password" else "ben", said="elevenchars\n")
    assert changed.returncode == 0
    assert changed.stderr.startswith("warning: the password of ")
    assert "elevenchars" not in changed.stderr


def test_what_is_wrong_is_told_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users"
    for arguments in (["list"], ["check"], ["remove", "anna"], ["password", "anna"]):
        assert "there is no such users file; make one with `cairnmq users add`" in refused(users(path, *arguments), 2)
    assert os.listdir(tmp_path) == []
    assert "can't be used: it is empty" in refused(users(path, "add", "anna"))
    assert "no spaces, colons" in refused(users(path, "add", "an na", said="x\n"), 2)
    assert "reserved for anonymous" in refused(users(path, "add", "anonymous", said="x\n"), 2)
    assert os.listdir(tmp_path) == []
    assert users(path, "add", "anna", said="one stone\n").returncode == 0
    before = path.read_bytes()
    assert "it has a user 'anna' already" in refused(users(path, "add", "anna"))  # no password is read
    assert "it has no user 'ben'" in refused(users(path, "remove", "ben"))
    assert "up to 1024 bytes" in refused(users(path, "password", "anna", said="x" * 2000))
    assert "can't be written" in refused(users(Path("/proc/nowhere/users"), "add", "anna", said="x\n"))
    assert path.read_bytes() == before
    path.chmod(0o644)
    assert f"chmod 600 {path}" in refused(users(path, "check"), 2)
    path.write_bytes(before + b"ben:letmein\n")
    for arguments in (["list"], ["check"], ["add", "carla"], ["remove", "anna"]):
        assert f"{path}, line 3: a line is NAME:" in refused(users(path, *arguments, said="x\n"), 2)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--users-file", "nowhere"], "nowhere: there is no such users file"),
        (["--acl-file", "nowhere"], "nowhere: can't be read"),
        (["--tls-port", "0"], "--tls-port: there is no certificate to show; name one with --tls-cert"),
        (["--tls-only"], "TLS is to be spoken, and at no port; give one with --tls-port"),
        (["--tls-port", "0", "--tls-cert", "nowhere"], "--tls-cert nowhere, --tls-key nowhere: can't be used"),
    ],
)
def test_a_broker_that_can_not_guard_does_not_start(tmp_path: Path, options: list[str], complaint: str) -> None:
    command = [CAIRNMQ, "broker", "--store-dir", "data", "--port", "0", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert complaint in refused(result, 2)
    assert os.listdir(tmp_path) == [], "and the store is not touched"


def test_with_a_users_file_any_address_will_do(tmp_path: Path) -> None:
    """A broker with a users file listens on any address; with `--anonymous`, this needs a confirmation."""
    path = tmp_path / "users"
    assert users(path, "add", "anna", said="one stone\n").returncode == 0
    with broker(tmp_path / "data", "--listen", "0.0.0.0", "--users-file", str(path)) as running:
        running.wait_for(r" listening on 0\.0\.0\.0:")
    command = [CAIRNMQ, "broker", "--store-dir", "x", "--listen", "0.0.0.0", "--users-file", str(path), "--anonymous"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert "give --anonymous twice" in refused(result, 2)
