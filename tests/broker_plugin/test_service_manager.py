"""Tests of the status notifications that a broker sends to systemd, here to a socket of the test."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.broker.scheduling.scheduler import Scheduler
from cairnmq.broker_plugin import service_manager as service_manager_module
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions
from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.broker_plugin.service_manager import ServiceManager, service_manager
from cairnmq.cli.main import cairnmq
from cairnmq.cli.run.broker import broker as command_of_broker
from tests.harness.process import DEADLINE_S, BrokerProcess
from tests.harness.router.held_core import core_held_up

PAGE = Path(__file__).parents[2] / "docs" / "how-to/systemd.md"
WATCHDOG_S = 0.4
"""Watchdog timeout, for which the broker sends a keep-alive every 0.1 s."""
SILENT_S = 3 * WATCHDOG_S
KEEP_ALIVE = "WATCHDOG=1"


class Listener:
    """A notification socket in place of systemd's."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def next(self, timeout_s: float = DEADLINE_S) -> str:
        """Return the next notification; raise TimeoutError if none arrives in time."""
        self.socket.settimeout(timeout_s)
        return self.socket.recv(4096).decode()

    def drain(self) -> None:
        """Discard all notifications received so far."""
        self.socket.setblocking(False)
        while True:
            try:
                self.socket.recv(4096)
            except BlockingIOError:
                return

    def environment(self, **more: str) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.address, **more}

    def asks(self, watchdog_s: float) -> dict[str, str]:
        return self.environment(WATCHDOG_USEC=str(int(watchdog_s * 1e6)))


@pytest.fixture(params=["path", "abstract"])
def listener(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Listener]:
    name = f"@cairnmq-test-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    made = Listener(name)
    yield made
    made.socket.close()


def started(tmp_path: Path, environment: dict[str, str]) -> BrokerProcess:
    return BrokerProcess(tmp_path / "store", "--port", "0", environment=environment)


def wait_until_stopped(pid: int) -> None:
    found, status = os.waitpid(pid, os.WUNTRACED)
    assert found == pid
    assert os.WIFSTOPPED(status)


def test_a_broker_is_alive_until_it_is_stopped_and_again_when_it_goes_on(tmp_path: Path, listener: Listener) -> None:
    running = started(tmp_path, listener.asks(WATCHDOG_S))
    try:
        assert listener.next() == f"READY=1\nSTATUS=listening on 127.0.0.1:{running.port}"
        assert [listener.next() for _ in range(10)] == [KEEP_ALIVE] * 10, "without any traffic"
        running.process.send_signal(signal.SIGSTOP)
        wait_until_stopped(running.process.pid)
        listener.drain()
        with pytest.raises(TimeoutError):
            listener.next(SILENT_S)
        running.process.send_signal(signal.SIGCONT)
        assert [listener.next() for _ in range(10)] == [KEEP_ALIVE] * 10
        running.process.send_signal(signal.SIGTERM)
        told = [listener.next()]
        while told[-1] == KEEP_ALIVE:
            told.append(listener.next())
        assert told[-1] == "STOPPING=1"
        assert running.wait() == 0
        listener.drain()
    finally:
        if running.process.poll() is None:
            running.stop(signal.SIGKILL)


def test_a_broker_whose_core_hangs_is_not_alive(tmp_path: Path) -> None:
    """While the core is blocked, no keep-alive is sent, although other threads run."""
    listener = Listener(str(tmp_path / "notify"))
    options = BrokerOptions(str(tmp_path / "store"), router=RouterOptions(port=0))
    running = RunningBroker(options, manager=ServiceManager(listener.address, WATCHDOG_S))
    try:
        assert listener.next().startswith("READY=1")
        assert listener.next() == KEEP_ALIVE
        with core_held_up(running):
            listener.drain()
            with pytest.raises(TimeoutError):
                listener.next(SILENT_S)
        assert [listener.next() for _ in range(3)] == [KEEP_ALIVE] * 3
    finally:
        running.stop()
        listener.socket.close()


def test_the_unit_file_of_the_page_starts_a_broker() -> None:
    """The documented unit file uses existing options, the notify type, and a watchdog interval of at least 30 s."""
    unit = ConfigParser(interpolation=None, strict=False)  # systemd permits repeated keys
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(PAGE.read_text().partition("```ini")[2].partition("\n")[2].partition("```")[0])
    service = unit["Service"]
    command, *words = service["ExecStart"].split()[1:]
    assert command == "broker"
    known = {option for parameter in command_of_broker.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known
    assert service["Type"] == "notify"
    assert float(service["WatchdogSec"]) >= 30


def test_that_files_are_read_again_is_told_by_when_and_how_it_went(tmp_path: Path, listener: Listener) -> None:
    """A reload by signal or by management is reported to systemd as `Type=notify-reload` requires."""
    rules, allowed = tmp_path / "acl.toml", '[[rules]]\nwho = ["*"]\nmay = ["*"]\n'
    rules.write_text(allowed)
    environment = listener.environment()
    running = BrokerProcess(
        tmp_path / "store", "--port", "0", "--acl-file", str(rules), environment=environment
    ).ready()
    try:
        up = listener.next()
        url = f"127.0.0.1:{running.port}"
        for by_management in (False, True):
            for content, told in ((allowed, ""), ("[[rules", "; reload failed, nothing is changed: .*acl.toml.*")):
                rules.write_text(content)
                before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
                if by_management:
                    CliRunner().invoke(cairnmq, ["ctl", "--url", url, "reload"])
                else:
                    running.process.send_signal(signal.SIGHUP)
                begins = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", listener.next())
                assert begins
                ends = listener.next()
                now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
                assert before_us <= int(begins[1]) <= now_us
                assert re.fullmatch(re.escape(up) + told, ends)
    finally:
        running.stop()
    assert listener.next() == "STOPPING=1"


def test_that_it_has_reloaded_is_said_when_there_is_room_and_not_when_it_stops(tmp_path: Path) -> None:
    """A reload's end is reported once the socket has room, without blocking the core, and not after `STOPPING=1`."""
    listener, clock = Listener(str(tmp_path / "notify")), ManualClock()
    scheduler = Scheduler(clock, lambda action: None)
    manager = ServiceManager(listener.address, 4.0)
    for _ in range(5000):
        manager.keep_alive(scheduler)
    manager.reloaded("there\nSTOPPING=1", scheduler)
    listener.drain()
    clock.advance(0.5)
    scheduler.run()
    assert listener.next() == "READY=1\nSTATUS=there STOPPING=1"
    manager.stopping()
    manager.reloaded("there", scheduler)
    assert listener.next() == "STOPPING=1"
    with pytest.raises(BlockingIOError):
        listener.next(0)
    manager.close()
    listener.socket.close()


def test_without_a_watchdog_it_says_that_it_is_up_and_that_it_ends(tmp_path: Path) -> None:
    listener = Listener(str(tmp_path / "notify"))
    running = started(tmp_path, listener.environment()).ready()
    assert running.stop() == 0
    assert listener.next().startswith("READY=1\nSTATUS=listening on ")
    assert listener.next() == "STOPPING=1"
    with pytest.raises(BlockingIOError):
        listener.next(0)
    listener.socket.close()


def test_nobody_listens_and_the_broker_runs(tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "nowhere"), "WATCHDOG_USEC": "100000"}
    running = started(tmp_path, environment).ready()
    running.wait_for(r"NOTIFY_SOCKET .*nowhere: .*No such file.*; systemd receives no status of this broker")
    assert running.stop() == 0
    assert sum("NOTIFY_SOCKET" in line for line in running.lines) == 1


def test_only_the_process_that_is_meant_keeps_alive(tmp_path: Path) -> None:
    scheduler = Scheduler(ManualClock(), lambda action: None)
    for pid, keeps in (("7", True), ("8", False)):
        listener = Listener(str(tmp_path / pid))
        manager = service_manager(listener.environment(WATCHDOG_USEC="100000", WATCHDOG_PID=pid), 7)
        assert manager is not None
        manager.keep_alive(scheduler)
        manager.stopping()
        assert [listener.next()] == [KEEP_ALIVE if keeps else "STOPPING=1"]
        manager.close()
        listener.socket.close()


def test_a_listener_that_takes_no_more_does_not_hold_up_the_core(tmp_path: Path) -> None:
    listener, clock = Listener(str(tmp_path / "notify")), ManualClock()
    scheduler = Scheduler(clock, lambda action: None)
    manager = ServiceManager(listener.address, 4.0)
    manager.keep_alive(scheduler)
    begun = scheduler.due_s
    for _ in range(5000):  # far more than the socket buffer holds
        clock.advance(1)
        scheduler.run()
    assert scheduler.due_s == begun + 5000
    listener.drain()
    clock.advance(1)
    scheduler.run()
    assert listener.next() == KEEP_ALIVE
    manager.close()
    listener.socket.close()


def test_that_it_is_up_is_not_lost_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker logs a warning if systemd does not receive the readiness notification within `PATIENCE_S`."""
    monkeypatch.setattr(service_manager_module, "PATIENCE_S", 1)
    listener, scheduler = Listener(str(tmp_path / "notify")), Scheduler(ManualClock(), lambda action: None)
    manager = ServiceManager(listener.address, 4.0)
    for _ in range(5000):
        manager.keep_alive(scheduler)
    assert not caplog.messages
    manager.ready("listening")
    assert [message for message in caplog.messages if "systemd receives no status" in message]
    manager.close()
    listener.socket.close()


def test_who_is_not_asked_has_nothing_to_say() -> None:
    assert service_manager({}, 7) is None
    assert service_manager({"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "1"}, 7) is None


@pytest.mark.parametrize("wanted", ["0", "-1", "1.5", "soon", "²"])
def test_a_watchdog_that_is_no_number_is_told(wanted: str) -> None:
    with pytest.raises(CairnError, match=f"WATCHDOG_USEC: invalid number of microseconds '{wanted}'; set Watchd"):
        service_manager({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": wanted}, 7)


def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(CairnError, match="NOTIFY_SOCKET: 'vsock:2:9' is neither a path nor an abstract name; start"):
        service_manager({"NOTIFY_SOCKET": "vsock:2:9"}, 7)
