"""Tests of fleets: many clients that connect at the same time, as after a restart of the broker, get in."""

from __future__ import annotations

import itertools
import resource
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from cairnmq.base.accounts.trusted_logins import FILE_NAME
from tests.harness.process import broker
from tests.harness.security.wire import Wire, wired
from tests.harness.thorough import amount

from .conftest import PASSWORDS, Certificates

COUNT = amount("CAIRNMQ_FLEET", 5000, 1000)
FILES_OF_TEST = 500
AT_ONCE = 16
"""Clients that log in at a time, while all others are connected and wait."""
STRANGERS = 300
GUESSERS = 100
OK = 0


@pytest.fixture
def many_files() -> Iterator[int]:
    """Raise the limit of open files of this process; provide the number of connections that it can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield min(COUNT, hard - FILES_OF_TEST)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "SCRAM-SHA-256", "PLAIN"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_fleet_that_connects_at_once_gets_in(
    tmp_path: Path, users_file: str, certificates: Certificates, many_files: int, secure: bool, mechanism: str
) -> None:  # issue 30: default limits cut off a fleet
    """Each client of a fleet at one address gets in, though all are connected before the first one speaks."""
    options = ["--tls-cert", certificates.server, "--tls-key", certificates.server, "--tls-port", "0"] if secure else []
    if mechanism != "ANONYMOUS":
        options += ["--users-file", users_file, "--allow-insecure-auth"]
    with broker(tmp_path / "data", *options) as running, ExitStack() as stack:
        port = int(running.wait_for(r"with TLS on [^\"]*:(\d+)")[1]) if secure else running.port
        wires = [Wire(port) for _ in range(many_files)]
        for wire in wires:
            stack.callback(lambda wire=wire: wire.sock.close())  # type: ignore[misc]
        context = certificates.client()

        def get_in(wire: Wire) -> bool:
            if secure:
                wire.secure(context)
            if mechanism == "PLAIN":
                assert wire.plain("anna", PASSWORDS["anna"]) == 0
            elif mechanism != "ANONYMOUS":
                assert wire.scram("anna", PASSWORDS["anna"]) == 0
            wire.open()
            return True

        with ThreadPoolExecutor(AT_ONCE) as pool:
            assert sum(pool.map(get_in, wires)) == many_files


def test_clients_wait_for_places_that_others_free(tmp_path: Path) -> None:  # issue 30: default limits cut off a fleet
    """More clients than places of unauthenticated connections get in one after the other, and none is closed."""
    with broker(tmp_path / "data", "--max-unauthenticated", "5") as running, ExitStack() as stack:
        port = running.port

        def get_in(_: int) -> Wire:
            return Wire(port).open()

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for wire in pool.map(get_in, range(STRANGERS)):
                stack.callback(wire.sock.close)


def test_strangers_of_one_address_keep_nobody_out(tmp_path: Path) -> None:  # issue 30: default limits cut off a fleet
    """While silent strangers have all places and the backlog, clients of any address get in."""
    with broker(tmp_path / "data", "--max-unauthenticated", "20") as running, ExitStack() as stack:
        for _ in range(STRANGERS):
            stack.callback(Wire(running.port).sock.close)
        for source in ("127.0.0.1", "127.0.0.2"):
            wire = Wire(running.port, source=source)
            stack.callback(wire.sock.close)
            wire.open()


def test_guess_flood_after_a_kill_keeps_no_user_out(tmp_path: Path, users_file: str) -> None:  # A4
    """A user who logged in before a kill gets in while one address, with the same names and others, guesses."""
    options = ("--users-file", users_file, "--allow-insecure-auth")
    with broker(tmp_path / "data", *options) as running, wired(running.port) as wire:
        assert wire.plain("anna", PASSWORDS["anna"]) == OK
        wire.open()
        while not (tmp_path / "data" / FILE_NAME).exists():
            time.sleep(0.01)
        running.stop(signal.SIGKILL)
    with broker(tmp_path / "data", *options) as running:
        stopping, failures = threading.Event(), itertools.count()

        def guess(number: int) -> None:
            while not stopping.is_set():
                with suppress(OSError, EOFError), wired(running.port) as guessing:
                    guessing.plain("anna" if number % 2 else f"name-{number}", "a guess")
                    next(failures)

        threads = [threading.Thread(target=guess, args=(number,), daemon=True) for number in range(GUESSERS)]
        for thread in threads:
            thread.start()
        try:
            while next(failures) < GUESSERS:  # each has failed, and is delayed by now
                stopping.wait(0.05)
            with wired(running.port) as wire:
                assert wire.plain("anna", PASSWORDS["anna"]) == OK
            wire = Wire(running.port, source="127.0.0.2")
            assert wire.plain("ben", PASSWORDS["ben"]) == OK
            wire.sock.close()
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
