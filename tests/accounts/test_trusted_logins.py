"""Tests of the file of logins that succeeded before (A4)."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.accounts import trusted_logins
from cairnmq.base.accounts.login_turns import LoginTurns
from cairnmq.base.accounts.trusted_logins import FILE_NAME, TrustedLogins
from cairnmq.base.clock import SystemClock
from tests.harness.process import DEADLINE_S

LOGINS = st.lists(st.tuples(st.sampled_from(["10.0.0.1", "::1"]), st.text(max_size=8)), max_size=30)


@given(LOGINS)
def test_logins_are_trusted_in_later_lives(
    tmp_path_factory: pytest.TempPathFactory, logins: list[tuple[str, str]]
) -> None:
    """Without any orderly end, each life of a broker trusts the logins of those before."""
    path = str(tmp_path_factory.mktemp("store") / FILE_NAME)
    for number, login in enumerate(logins):
        life = TrustedLogins(path)
        assert all(earlier in life for earlier in logins[:number])
        life.add(*login)
        life.save()
    assert ("10.0.0.9", "mallory") not in TrustedLogins(path)


def test_file_of_trusted_logins_is_bounded_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted_logins, "MOST_ENTRIES", 10)
    monkeypatch.setattr(trusted_logins, "_MOST_BYTES", 40 + 20 * 16)
    path = tmp_path / FILE_NAME
    life = TrustedLogins(str(path))
    for number in range(100):
        life.add("10.0.0.1", f"user-{number}")
        life.save()
        assert path.stat().st_size <= 40 + 20 * 16
        assert number < 9 or len(TrustedLogins(str(path))) == 10
    assert ("10.0.0.1", "user-99") in TrustedLogins(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"user" not in path.read_bytes()


@pytest.mark.parametrize("cut", [0, 7, 39, 40, 45, 56, 60])
def test_damaged_file_of_trusted_logins_is_replaced(tmp_path: Path, cut: int) -> None:
    path = tmp_path / FILE_NAME
    life = TrustedLogins(str(path))
    for name in ("anna", "ben"):
        life.add("10.0.0.1", name)
        life.save()
    path.write_bytes(path.read_bytes()[:cut])
    life = TrustedLogins(str(path))
    assert (("10.0.0.1", "anna") in life) == (cut >= 56)
    life.add("10.0.0.1", "carl")
    life.save()
    assert ("10.0.0.1", "carl") in TrustedLogins(str(path))


def test_unwritable_file_of_trusted_logins_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = TrustedLogins(str(tmp_path / "missing" / FILE_NAME))
    for name in ("anna", "ben"):
        life.add("10.0.0.1", name)
        life.save()
    assert ("10.0.0.1", "ben") in life
    assert [record.event for record in caplog.records] == ["login.trust-failed"]  # type: ignore[attr-defined]


def test_trusted_logins_are_saved_by_the_thread_of_lookups(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    turns = LoginTurns(SystemClock(), 4, trusted_path=str(path))
    turns.succeeded("10.0.0.1", "anna")
    until_s = monotonic() + DEADLINE_S
    while ("10.0.0.1", "anna") not in TrustedLogins(str(path)):
        assert monotonic() < until_s
    turns.stop()
