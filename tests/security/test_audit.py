"""The audit log records logins and failed logins, and limits the records that unauthenticated clients cause."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.accounts import audit
from cairnmq.base.accounts.audit import (
    BUDGETS,
    CREDENTIALS,
    LOGIN_FAILED,
    MECHANISMS,
    PERIOD_S,
    REASONS,
    Audit,
    LoginFailure,
)
from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.security.login import OK
from tests.harness.security.wire import AMQP, CLOSE, OPEN, performative, string, wired

from .conftest import PASSWORDS

AUTH = 1


class _Kept(logging.Handler):
    """A handler that appends records to a list."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


FAILURE = LoginFailure("192.0.2.1:4711", "anna", "PLAIN", CREDENTIALS, "wrong user name or password")


def events(logged: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [record for record in logged.records if getattr(record, "event", "") == name]


def test_wrong_password_is_one_sentence_for_every_mechanism(
    guarded: RunningBroker, logged: pytest.LogCaptureFixture
) -> None:  # W11, usability 24
    addresses = []
    for user in ("anna", "nobody"):
        for log_in in ("plain", "scram"):
            with wired(guarded.port) as wire:
                host, port = wire.sock.getsockname()
                addresses.append(f"{host}:{port}")
                assert getattr(wire, log_in)(user, "not this stone") == AUTH
                wire.rest()
    found = events(logged, LOGIN_FAILED)
    assert [record.levelno for record in found] == [logging.WARNING] * 4
    assert [record.getMessage() for record in found] == [
        f"{address}: login of user {user!r} failed ({mechanism}): wrong user name or password"
        for address, user, mechanism in zip(
            addresses, ("anna", "anna", "nobody", "nobody"), ("PLAIN", "SCRAM-SHA-256") * 2, strict=True
        )
    ]


def test_failed_login_is_counted_by_known_mechanism_and_reason(
    guarded: RunningBroker, logged: pytest.LogCaptureFixture
) -> None:
    audited = guarded._audit
    with wired(guarded.port) as wire:
        wire.plain("anna", "wrong")
        wire.rest()
    for mechanism in ("X-1\x1b[31m", "X-2", "X-3"):
        with wired(guarded.port) as wire:
            wire.sasl()
            wire.init(mechanism, b"")
            wire.rest()
    with wired(guarded.port) as wire:
        wire.send(b"GET / HTTP/1.1\r\n\r\n")
        wire.rest()
    assert dict(+audited.failures) == {("PLAIN", "credentials"): 1, ("other", "mechanism"): 3, ("none", "protocol"): 1}
    assert all(record.getMessage().isprintable() for record in events(logged, LOGIN_FAILED))


def test_login_is_recorded_with_user_address_and_container(
    guarded: RunningBroker, logged: pytest.LogCaptureFixture
) -> None:
    with wired(guarded.port) as wire:
        wire.scram("ben", PASSWORDS["ben"])
        wire.open()
        host, port = wire.sock.getsockname()
    (record,) = events(logged, audit.LOGIN)
    assert vars(record)["fields"] == {
        "address": f"{host}:{port}", "user": "ben", "mechanism": "SCRAM-SHA-256", "container": "raw",
    }  # fmt: skip
    assert record.levelno == logging.DEBUG


@pytest.mark.parametrize("name", ["cairnmq-console@10.0.0.9-abcd", "cairnmq-console@"])
def test_client_takes_no_container_id_of_the_console(guarded: RunningBroker, name: str) -> None:  # A14
    """Container IDs that the audit trail shows as addresses of browsers are refused, also to administrators."""
    with wired(guarded.port) as wire:
        assert wire.scram("ben", PASSWORDS["ben"]) == OK
        wire.send(AMQP)
        assert wire.read(8) == AMQP
        wire.say(performative(OPEN, string(name)))
        assert b"reserved for the web console" in wire.until(CLOSE)[1]


@given(counts=st.lists(st.integers(0, 300), max_size=6))
def test_flood_of_failures_is_counted_and_not_recorded(counts: list[int]) -> None:
    """The records in each period are limited, and recorded and suppressed failures add up to all failures."""
    clock = ManualClock()
    audited = Audit(clock)
    found: list[logging.LogRecord] = []
    handler = _Kept(found)
    audit.log.addHandler(handler)
    try:
        for count in counts:
            before = len(found)
            for _ in range(count):
                audited.login_failed(FAILURE)
            assert len(found) - before <= 2 * BUDGETS[LOGIN_FAILED] + 1  # of the address, and of the name
            clock.advance(PERIOD_S)
        audited.close()
    finally:
        audit.log.removeHandler(handler)
    recorded = sum(vars(record)["event"] == LOGIN_FAILED for record in found)
    suppressed = sum(vars(record)["fields"]["count"] for record in found if vars(record)["event"] == audit.SUPPRESSED)
    assert recorded + suppressed == sum(counts) == sum(audited.failures.values())


@given(noise=st.integers(0, 400), names=st.integers(1, 60))
def test_records_of_one_user_hide_nobody_else(noise: int, names: int) -> None:  # A15
    """A refused change and a failed login are recorded however many others are refused, and those are named."""
    audited = Audit(ManualClock())
    found: list[logging.LogRecord] = []
    handler = _Kept(found)
    audit.log.addHandler(handler)
    try:
        for number in range(noise):
            audited.changed(audit.Change("evil", "192.0.2.9:1", "DELETE", "queue", "q", audit.DENIED, 403))
            audited.login_failed(FAILURE._replace(address="192.0.2.9:1", user=f"name-{number % names}"))
        audited.changed(audit.Change("infix", "192.0.2.1:1", "DELETE", "queue", "q", audit.DENIED, 403))
        audited.login_failed(FAILURE._replace(address="192.0.2.1:1", user="admin"))
        audited.close()
    finally:
        audit.log.removeHandler(handler)
    fields = [(vars(record)["event"], vars(record)["fields"]) for record in found]
    assert any(event == audit.CHANGE_REFUSED and one["user"] == "infix" for event, one in fields)
    assert any(event == LOGIN_FAILED and one["user"] == "admin" for event, one in fields)
    suppressed = [one["users"] for event, one in fields if event == audit.SUPPRESSED and one["of"] != LOGIN_FAILED]
    assert suppressed == ([{"evil": noise - 100}] if noise > 100 else [])


@given(mechanism=st.text(), reason=st.sampled_from(REASONS), user=st.text(), text=st.text())
def test_labels_of_failures_are_bounded(mechanism: str, reason: str, user: str, text: str) -> None:
    audited = Audit(ManualClock())
    audited.login_failed(LoginFailure("192.0.2.1:4711", user, mechanism, reason, text))
    assert {label for label, _ in audited.failures} <= set(MECHANISMS)


def test_audit_file_is_private_and_is_created_anew_after_rotation(tmp_path: Path) -> None:  # W15
    path = tmp_path / "audit.json"
    mask = os.umask(0)
    try:
        end = audit.open_file(str(path))
        audited = Audit(ManualClock())
        audited.login_failed(FAILURE)
        path.rename(tmp_path / "audit.json.1")
        audited.login_failed(FAILURE._replace(user="a\u2028\x9b\u202eb"))
        end()
        audited.login_failed(FAILURE)
    finally:
        os.umask(mask)
    lines = [(tmp_path / name).read_text() for name in ("audit.json.1", "audit.json")]
    assert [line.count("\n") for line in lines] == [1, 1]
    assert lines[1].removesuffix("\n").isprintable()
    told = [json.loads(line) for line in lines]
    assert [one["user"] for one in told] == ["anna", "a\u2028\x9b\u202eb"]
    assert {one["event"] for one in told} == {LOGIN_FAILED}
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {0o600}


def test_audit_file_is_not_a_symbolic_link(tmp_path: Path) -> None:  # W15
    (tmp_path / "victim").write_text("unharmed")
    (tmp_path / "audit.json").symlink_to("victim")
    with pytest.raises(CairnError, match="--audit-file"):
        audit.open_file(str(tmp_path / "audit.json"))
    assert (tmp_path / "victim").read_text() == "unharmed"


def test_audit_file_that_cannot_be_written_is_reported_once(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "there").mkdir()
    end = audit.open_file(str(tmp_path / "there" / "audit.json"))
    audited = Audit(ManualClock())
    (tmp_path / "there").rename(tmp_path / "gone")
    for _ in range(3):
        audited.login_failed(FAILURE)
    (tmp_path / "gone").rename(tmp_path / "there")
    audited.login_failed(FAILURE)
    end()
    assert sum("can't be written" in record.getMessage() for record in logged.records) == 1
    assert (tmp_path / "there" / "audit.json").read_text().count("\n") == 1
