"""Tests of `cairnmq doctor`: each check detects its problem, and the severity determines the status."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from cairnmq.base.errors import SharedDirectory
from cairnmq.store.directory.refusals import refuse_shared
from cairnmq.tools.diagnosis.certificate_checks import check_certificates
from cairnmq.tools.diagnosis.host_checks import (
    check_clock_source,
    check_file_size,
    check_files,
    check_host,
    check_synchronized,
)
from cairnmq.tools.diagnosis.report import Finding, Severity
from cairnmq.tools.diagnosis.store_checks import (
    check_file_system,
    check_modes,
    check_secret_files,
    check_space,
    check_store,
    check_sync_times,
)
from tests.harness.process import CAIRNMQ, DEADLINE_S

OK, WARNING, ERROR = Severity
MIB = 1 << 20


@pytest.mark.parametrize(
    ("found", "severity"),
    [
        (check_files(65_536), OK),
        (check_files(-1), OK),
        (check_files(4096), WARNING),
        (check_files(1000), ERROR),
        (check_file_size(-1), OK),
        (check_file_size(1 << 30), WARNING),
        (check_clock_source("tsc"), OK),
        (check_clock_source(""), OK),
        (check_clock_source("hpet"), WARNING),
        (check_synchronized(None), OK),
        (check_synchronized(0x2001), OK),
        (check_synchronized(0x40), WARNING),
        (check_file_system("ext4", "rw,relatime", "/"), OK),
        (check_file_system("xfs", "rw,nobarrier", "/"), ERROR),
        (check_file_system("ext4", "rw,data=writeback", "/"), ERROR),
        (check_file_system("tmpfs", "rw", "/tmp"), ERROR),
        (check_file_system("nfs4", "rw", "/srv"), WARNING),
        (check_file_system("overlay", "rw", "/"), WARNING),
        (check_space(100 << 30, 200 << 30), OK),
        (check_space(1000 * MIB, 200 << 30), WARNING),
        (check_space(200 * MIB, 200 << 30), ERROR),
        (check_sync_times(400, 900), OK),
        (check_sync_times(400, 20_000), WARNING),
        (check_sync_times(60_000, 90_000), ERROR),
    ],
)
def test_check_finds_its_problem(found: Finding, severity: Severity) -> None:
    assert found.severity is severity, found
    assert bool(found.remedy) == (severity is not OK)


def test_host_checks_read_this_machine() -> None:
    found = [*check_host()]
    assert [one.check for one in found] == ["versions", "limits", "limits", "clock", "clock"]
    assert "cairnmq 0." in found[0].text


@pytest.mark.parametrize(
    ("days", "begins", "severity"),
    [(90, -1, OK), (20, -1, WARNING), (5, -1, ERROR), (-2, -9, ERROR), (90, 3, ERROR)],
)
def test_certificate_is_checked_for_its_validity(days: int, begins: int, severity: Severity, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = trustme.CA()
    issued = authority.issue_cert("host", not_before=now + timedelta(begins), not_after=now + timedelta(days))
    issued.cert_chain_pems[0].write_to_path(tmp_path / "broker.pem")
    [found] = check_certificates(str(tmp_path / "broker.pem"), now)
    assert (found.severity, found.check) == (severity, "certificates")


def test_certificate_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "broker.pem").write_text("no PEM")
    for name in ("broker.pem", "missing.pem"):
        [found] = check_certificates(str(tmp_path / name), datetime.now(UTC))
        assert found.severity is ERROR


def test_modes_of_a_store_and_of_secrets_are_checked(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    (store / "journal").touch(0o600)
    assert [one.severity for one in check_modes(str(store))] == [OK]
    (store / "journal").chmod(0o644)
    [found] = check_modes(str(store))
    assert found.severity is WARNING
    assert "journal" in found.text
    (store / "journal").chmod(0o600)
    store.chmod(0o770)  # S10: a broker refuses it
    with pytest.raises(SharedDirectory) as refused:
        refuse_shared(str(store))
    error = next(one for one in check_modes(str(store)) if one.severity is ERROR)
    assert refused.value.reason in error.text
    assert error.remedy == refused.value.remedy
    (tmp_path / "token").touch(0o600)
    (tmp_path / "key").touch()
    (tmp_path / "key").chmod(0o644)
    paths = [str(tmp_path / name) for name in ("token", "key", "missing")]
    assert [one.severity for one in check_secret_files(paths)] == [OK, ERROR, ERROR]


def test_missing_store_is_an_error(tmp_path: Path) -> None:
    [found] = check_store(str(tmp_path / "missing"), 0, lambda what, done, total: None)
    assert found.severity is ERROR


def doctor(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [CAIRNMQ, "doctor", *arguments], capture_output=True, text=True, timeout=DEADLINE_S,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert not done.stderr
    return done.returncode, done.stdout


def test_command_prints_findings_and_exits_by_their_severity(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o644)
    config = tmp_path / "cairnmq.toml"
    config.write_text(f'store-dir = "{store}"\nport = 0\n')
    status, text = doctor("--config", str(config), "--seconds", "0.1", "--output", "json")
    found = json.loads(text)
    severities = {one["severity"] for one in found}
    assert status == (3 if "error" in severities else 1 if "warning" in severities else 0)
    assert {"versions", "limits", "clock", "configuration", "store", "file system", "space", "permissions", "disk"} == {
        one["check"] for one in found
    }
    assert any("a sync of 4 KiB takes" in one["text"] for one in found)
    config.write_text(f'store-dir = "{store}"\nmetrics-port = 0\nmetrics-token-file = "{tmp_path / "token"}"\n')
    status, text = doctor("--config", str(config), "--seconds", "0", "--output", "csv", CAIRNMQ_PROT="1")
    assert status == 3
    rows = [*csv.DictReader(io.StringIO(text))]
    assert rows[0]["severity"] == "error"
    assert "0644" in rows[0]["text"]
    assert any("CAIRNMQ_PROT" in row["text"] and row["severity"] == "warning" for row in rows)
    config.write_text("prot = 5672\n")
    status, text = doctor("--config", str(config), "--seconds", "0")
    assert status == 3
    assert "prot" in text.splitlines()[1]
