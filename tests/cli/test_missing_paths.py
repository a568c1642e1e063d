"""Tests that a nonexistent path is an invalid argument in every command: exit status 2 and a one-line error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cairnmq.cli.main import main

CALLS = [
    "stat {}", "explain space {}", "verify {}", "dump {}", "backup {} copy", "restore {} new", "salvage {} --to new",
    "trace {} 1", "as-of {} end", "replay {} --to amqp://127.0.0.1:1", "sql {} queues",
    "export {} out --format parquet", "config check {}", "config show --config {}",
    "users list --users-file {}", "users check --users-file {}",
    "users remove anna --users-file {}", "users password anna --users-file {}",
    "broker --store memory --port 0 --users-file {}", "broker --store memory --port 0 --acl-file {}",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_missing_path_is_status_2(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = str(tmp_path / "nowhere")
    monkeypatch.setattr(sys, "argv", ["cairnmq", *(missing if word == "{}" else word for word in call.split())])
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capfd.readouterr().err.splitlines()
    assert (ended.value.code, missing in errors[-1]) == (2, True), errors
    assert list(tmp_path.iterdir()) == [], "nothing is created"
