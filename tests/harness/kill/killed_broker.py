"""A broker and its clients as separate processes, of which the broker is killed repeatedly."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from random import Random

from cairnmq.base.texts import counted
from cairnmq.tools.soak.client import RELAYED
from cairnmq.tools.soak.client_processes import command
from cairnmq.tools.soak.history import Died, Event, Notebook, Stopped, read
from cairnmq.tools.soak.wire import Settings

ROOT = Path(__file__).parents[3]
QUEUES = ("q0", "q1", "q2", RELAYED)
FLOOD = 4000
"""The number of small messages that each sender accumulates once, for recovery to read."""
RUN_S = {
    "early": [(0.0, 0.05)],
    "running": [(0.02, 0.2), (0.2, 0.8), (0.8, 1.6)],
    "stop": [(0.3, 0.8)],
    "pile": [(1.5, 2.5)],
}
"""Ranges of the time for which the broker runs with its clients before it is killed."""
PATIENCE_S = 180.0
"""The limit of every wait, after which the test fails."""


class Failure(AssertionError):
    """A violation of a requirement by the broker or a client."""


class Watch:
    """An inotify watch for files opened, written, created or renamed, which shows the progress of a starting broker."""

    _libc = ctypes.CDLL(None, use_errno=True)
    _modify, _close_write, _open, _moved_to, _create = 0x2, 0x8, 0x20, 0x80, 0x100

    def __init__(self, *paths: Path) -> None:
        self.fd = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        mask = self._modify | self._close_write | self._open | self._moved_to | self._create
        for path in paths:
            if self._libc.inotify_add_watch(self.fd, os.fsencode(path), mask) < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))

    def count(self) -> int:
        """Return the number of events since the last call."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return 0
        at = events = 0
        while at < len(data):
            at += 16 + int(struct.unpack_from("I", data, at + 12)[0])
            events += 1
        return events

    def close(self) -> None:
        os.close(self.fd)


class Broker:
    """One process of the broker."""

    def __init__(self, store: Path, log: Path, *options: str) -> None:
        command = [str(Path(sys.executable).with_name("cairnmq")), "broker", "--port", "0", *options]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--store-dir", str(store)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, bufsize=0,
            )  # fmt: skip
        assert self.process.stdout is not None
        self.started_s = time.monotonic()
        self.port = 0
        self.output = ""
        self._log = log
        self._stdout = self.process.stdout.fileno()
        self._exited = os.pidfd_open(self.process.pid)

    def wait(self, timeout_s: float, *, until_listening: bool = False, watch: Watch | None = None) -> int:
        """Wait *timeout_s*, or until *watch* has events (return how many) or the broker listens; fail if it ends."""
        poll = select.poll()
        poll.register(self._exited, select.POLLIN)
        if until_listening or watch is not None:
            poll.register(self._stdout, select.POLLIN)
        if watch is not None:
            poll.register(watch.fd, select.POLLIN)
        end_s = time.monotonic() + timeout_s
        while not (self.port and (until_listening or watch is not None)):
            left_s = end_s - time.monotonic()
            ready = {fd for fd, _ in poll.poll(max(0.0, left_s * 1000))}
            if self._exited in ready:
                self._read(to_end=True)
                raise Failure(f"the broker ended by itself ({self.process.wait()}): {self.output}\n{self.errors()}")
            if self._stdout in ready:
                self._read()
            if watch is not None and watch.fd in ready:
                return watch.count()
            if not ready or left_s <= 0:
                break
        return 0

    def listening(self) -> None:
        """Wait until the broker listens for clients."""
        self.wait(PATIENCE_S, until_listening=True)
        if not self.port:
            raise Failure(f"the broker did not start within {PATIENCE_S} s: {self.output}\n{self.errors()}")

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> None:
        """Stop the broker with SIGTERM, as an operator does; check that it reports a clean stop."""
        self.process.terminate()
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"the broker does not end on SIGTERM\n{self.errors()}") from None
        self._end()
        if status or "everything is on the disk" not in self.output:
            raise Failure(f"SIGTERM: exit status {status}, {self.output}\n{self.errors()}")

    def report(self) -> list[str]:
        """Return the recovery report of a broker that has ended."""
        parts = (line.partition(" broker.recovered ") for line in self.output.splitlines())
        return [text for _, event, text in parts if event]

    def errors(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def _end(self) -> None:
        self.process.wait()
        self._read(to_end=True)
        os.close(self._exited)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self, *, to_end: bool = False) -> None:
        while data := os.read(self._stdout, 65536):
            self.output += data.decode()
            if not to_end:
                break
        if not self.port and (found := re.search(r"listening on .*:(\d+)\n", self.output)):
            self.port = int(found[1])


class ClientProcess:
    """One process of a sender or a receiver."""

    def __init__(self, role: str, name: str, seed: str, directory: Path, queues: Iterable[str]) -> None:
        self.role = role
        self.name = name
        self.queues = tuple(queues)
        self.notebook = directory / f"{name}.jsonl"
        self._errors = directory / f"{name}.err"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command(Settings(role, name, seed, str(self.notebook), list(self.queues))),
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, bufsize=0,
            )  # fmt: skip

    def command(self, *words: object) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        except BrokenPipeError:
            self.ended_well()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended_well(self, timeout_s: float = PATIENCE_S) -> None:
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"client {self.name} does not end") from None
        if status:
            raise Failure(f"client {self.name} failed: {self._errors.read_text()}")


class Group:
    """A broker and its clients, run through a planned series of broker processes; most end with a kill."""

    def __init__(self, name: str, seed: str, kills: int, directory: Path, *options: str) -> None:
        """*options*: options of the broker besides the port and the store directory."""
        self.name = name
        self.kills = Counter[str]()
        """The number of kills by kind: `running`, `recovering`, `starting`."""
        self.recovered: list[str] = []
        """The recovery report of the last broker."""
        self._seed = seed
        self._random = Random(f"{seed}/{name}")
        self._goal = kills
        self._options = options
        self._directory = directory
        self._store = directory / "store"
        self._log = directory / "broker.log"
        self._notebook = Notebook(str(directory / "harness.jsonl"))
        self._life = 0
        self._client_count = 0
        self._clients: list[ClientProcess] = []
        self._was_stopped = False
        self._start_s = 0.5
        self._start_events = 40
        self._cleanup = ExitStack()

    def run(self) -> None:
        """Run the whole plan. Raises `Failure`; `history` has the events of the clients."""
        try:
            self._run()
        except Failure as failure:
            failure.add_note(f"seed {self._seed}, life {self._life}; histories and the broker's log: {self._directory}")
            raise

    def _run(self) -> None:
        with self._cleanup:
            for role, queues in (
                ("sender", QUEUES), ("sender", QUEUES), ("receiver", QUEUES[:3]), ("receiver", QUEUES[1:]),
            ):  # fmt: skip
                self._begin_client(role, queues)
            for ending in self._plan():
                self._live(ending)
            for client in self._clients:
                client.end()
            for client in self._clients:
                client.ended_well()
            self._drain()

    def history(self) -> list[Event]:
        return read(sorted(self._directory.glob("*.jsonl")))

    def complaints(self) -> str:
        """Return the end of the broker's log if it contains an error, otherwise an empty string."""
        log = self._log.read_text(errors="replace")
        return log[-4000:] if "Traceback" in log or " ERROR " in log else ""

    # ---- runs -----------------------------------------------------------------------------------------------------

    def _plan(self) -> list[str]:
        random = self._random
        kinds = ("running", "early", "recovering", "starting")
        plan = random.choices(kinds, (60, 14, 18, 8), k=self._goal)
        plan[: max(1, self._goal // 25)] = ["starting"] * max(1, self._goal // 25)  # while the store is being created
        third = self._goal // 3
        piled = ["pile", *["recovering"] * max(1, self._goal // 8)]
        plan[third : third + len(piled)] = piled[: self._goal - third]
        plan[2 * third : 2 * third + 1] = ["stop", "running"]  # the second start reports the state that the first left
        return plan

    def _live(self, ending: str) -> None:
        random = self._random
        self._life += 1
        broker = Broker(self._store, self._log, *self._options)
        self._cleanup.callback(broker.process.kill)
        if ending == "recovering":
            self._kill_recovering(broker)
        elif ending == "starting":
            broker.wait(random.uniform(0, 1.1 * self._start_s), until_listening=True)
            self._kill(broker)
        else:
            broker.listening()
            self._start_s = time.monotonic() - broker.started_s
            for client in self._clients:
                if ending != "pile":
                    client.command("connect", broker.port, self._life)
                elif client.role == "sender":
                    client.command("connect", broker.port, self._life, FLOOD)
            broker.wait(random.uniform(*random.choice(RUN_S[ending])))
            if random.random() < 0.15:
                self._kill_client()
                broker.wait(random.uniform(0, 0.1))
            if ending == "stop":
                self._note(Stopped(self._life, time.monotonic_ns()))
                broker.stop()
            else:
                self._kill(broker)
        if self._was_stopped:
            self._check_clean(broker.report())
        self._was_stopped = ending == "stop"

    def _kill_recovering(self, broker: Broker) -> None:
        """Kill the broker between its first access to the store and its first output."""
        journal = self._store / "journal"
        if not journal.is_dir():
            broker.wait(self._random.uniform(0, self._start_s), until_listening=True)
            self._kill(broker)
            return
        watch = Watch(self._store, journal)
        try:
            left = self._random.randint(1, self._start_events)
            seen = 0
            end_s = time.monotonic() + PATIENCE_S
            while not broker.port and left > 0 and time.monotonic() < end_s:
                events = broker.wait(PATIENCE_S, watch=watch)
                seen += events
                left -= events
        finally:
            watch.close()
        if broker.port:
            self._start_events = max(10, seen)
        elif seen > self._start_events:
            self._start_events = seen
        self._kill(broker, "recovering")

    def _kill(self, broker: Broker, while_: str = "starting") -> None:
        broker.kill()
        self.kills["running" if broker.port else while_] += 1

    def _check_clean(self, report: list[str]) -> None:
        unclean = [line for line in report if line.startswith(("cut ", "wrote ", "discarded ", "kept "))]
        if unclean or not report or "; closed cleanly)" not in report[0]:
            raise Failure(f"after SIGTERM the next start reports {report}")

    def _drain(self) -> None:
        """Empty the queues; check that recovery counted these messages, and none after one more restart."""
        self._life += 1
        broker = Broker(self._store, self._log, *self._options)
        self._cleanup.callback(broker.process.kill)
        broker.listening()
        drain = ClientProcess("drain", f"{self.name}-drain", self._seed, self._directory, QUEUES)
        self._cleanup.callback(drain.process.kill)
        drain.command("connect", broker.port, self._life)
        drain.ended_well(5 * PATIENCE_S)
        broker.stop()
        self.recovered = broker.report()
        drained = sum(1 for line in drain.notebook.read_text().splitlines() if line.startswith('["Got"'))
        if f"recovered {counted(drained, 'message')} on" not in self.recovered[0]:
            raise Failure(f"{drained} messages were there, but recovery reports {self.recovered}")
        last = Broker(self._store, self._log, *self._options)
        self._cleanup.callback(last.process.kill)
        last.listening()
        last.stop()
        self._check_clean(last.report())
        if "recovered 0 messages" not in last.report()[0]:
            raise Failure(f"all messages were taken, but recovery reports {last.report()}")

    # ---- clients --------------------------------------------------------------------------------------------------

    def _begin_client(self, role: str, queues: Iterable[str]) -> None:
        self._client_count += 1
        client = ClientProcess(role, f"{self.name}{role[0]}{self._client_count}", self._seed, self._directory, queues)
        self._cleanup.callback(client.process.kill)
        self._clients.append(client)

    def _kill_client(self) -> None:
        client = self._clients.pop(self._random.randrange(len(self._clients)))
        self._note(Died(client.name, self._life, time.monotonic_ns()))
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
        self._begin_client(client.role, client.queues)

    def _note(self, event: Event) -> None:
        self._notebook.note(event)
        self._notebook.flush()
