"""One rule for the files that decide about access: broker, connectors, console and tools agree about each file."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner

from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import FEWEST_ITERATIONS, make
from cairnmq.base.accounts.trusted_logins import TrustedLogins
from cairnmq.base.secret_files import exposure
from cairnmq.cli.main import cairnmq
from tests.harness.process import DEADLINE_S

SECRET, PROTECTED = (0o600, 0o400, 0o440, 0o640), (0o600, 0o644, 0o664, 0o444)
FILES = {
    "users-file": SECRET, "tls-key": SECRET, "metrics-token-file": SECRET, "connect-to-password-file": SECRET,
    "acl-file": PROTECTED, "tls-ca": PROTECTED,
}  # fmt: skip
DOCTOR = ("doctor", "--output", "json", "--seconds", "0")
NOBODY, GROUP = 65534, 20001


def write_files(place: Path) -> Path:
    """Write all files that a broker reads, and its configuration, whose path is returned."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(str(place / "tls-cert"))
    issued.private_key_pem.write_to_path(str(place / "tls-key"))
    authority.cert_pem.write_to_path(str(place / "tls-ca"))
    kept = make("a stone", FEWEST_ITERATIONS)
    users.change(str(place / "users-file"), lambda accounts: accounts.update(anna=kept))
    (place / "metrics-token-file").write_text("a-token\n")
    (place / "connect-to-password-file").write_text("a stone\n")
    (place / "acl-file").write_text('[[rules]]\nwho = ["*"]\nmay = ["*"]\n')
    for name in FILES:
        (place / name).chmod(0o600)
    named = "".join(f'{name} = "{place / name}"\n' for name in (*FILES, "tls-cert"))
    config = place / "cairnmq.toml"
    config.write_text(f'store = "memory"\ntls-port = 0\nconnect-to = ["amqp://anna@127.0.0.1:1"]\n{named}')
    return config


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640, 0o644, 0o604, 0o660, 0o664, 0o666, 0o602])
@pytest.mark.parametrize("name", [*FILES, "cairnmq.toml"])
def test_broker_and_doctor_agree_about_the_mode_of_each_file(tmp_path: Path, name: str, mode: int) -> None:  # A11
    config = write_files(tmp_path)
    (tmp_path / name).chmod(mode)
    is_secret = FILES.get(name) == SECRET
    is_exposed = mode & (0o027 if is_secret else 0o002)
    checked = CliRunner().invoke(cairnmq, ["config", "check", str(config)])
    said = CliRunner().invoke(cairnmq, [*DOCTOR, "--config", str(config), str(tmp_path)]).output
    assert bool(checked.exit_code) == bool(is_exposed), checked.exception
    assert ("may read or change it" in said or "others may change it" in said) == bool(is_exposed), said
    if is_exposed:
        assert f"{name}: others may" in str(checked.exception)
        assert f"chmod {'600' if is_secret else 'go-w'}" in str(checked.exception)


@pytest.mark.skipif(os.geteuid() != 0, reason="owners are changed by root only")
@pytest.mark.parametrize(
    ("owner", "group", "mode", "is_private"),
    [
        (0, GROUP, 0o440, True), (0, GROUP, 0o640, True), (NOBODY, GROUP, 0o640, True), (NOBODY, 0, 0o600, True),
        (0, GROUP, 0o660, False), (0, 0, 0o440, False), (NOBODY, 0, 0o640, False), (1, GROUP, 0o440, False),
        (0, GROUP, 0o444, False),
    ],
)  # fmt: skip
def test_group_and_owner_of_a_secret_are_those_of_the_process(
    tmp_path: Path, owner: int, group: int, mode: int, is_private: bool
) -> None:  # A11: a volume of Kubernetes with fsGroup has root's files, with the group of the process
    path = tmp_path / "secret"
    path.write_text("x")
    os.chown(path, owner, group)
    path.chmod(mode)
    code = (
        "import os, sys; from cairnmq.base.secret_files import exposure; "  # directories above are closed to the other
        f"os.chdir(sys.argv[1]); os.setgroups([{GROUP}]); os.setgid({NOBODY}); os.setuid({NOBODY}); "
        "print(exposure('secret')[0])"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    tmp_path.chmod(0o755)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert bool(done.stdout.strip()) != is_private, done.stdout


def test_logins_of_a_file_that_others_may_read_are_not_trusted(tmp_path: Path) -> None:  # A11
    path = tmp_path / "trusted-logins"
    before = TrustedLogins(str(path))
    before.add("10.0.0.1", "anna")
    before.save()
    path.chmod(0o666)
    after = TrustedLogins(str(path))
    assert ("10.0.0.1", "anna") not in after
    after.add("10.0.0.1", "anna")
    after.save()
    assert not exposure(str(path))[0]
    assert ("10.0.0.1", "anna") in TrustedLogins(str(path))


def test_broker_and_doctor_report_an_expired_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # A11
    config = write_files(tmp_path)
    now = datetime.now(UTC)
    issued = trustme.CA().issue_cert("localhost", not_before=now - timedelta(9), not_after=now - timedelta(2))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "tls-cert"))
    issued.private_key_pem.write_to_path(str(tmp_path / "tls-key"))
    checked = CliRunner().invoke(cairnmq, ["config", "check", str(config)])
    assert checked.exit_code == 0, checked.output
    assert "expired on" in caplog.text
    found = CliRunner().invoke(cairnmq, [*DOCTOR, "--config", str(config), str(tmp_path)])
    assert found.exit_code == 3
    assert "expired on" in found.output
