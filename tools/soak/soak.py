"""The durability soak: a broker is killed repeatedly under its clients, and the history of each is checked.

The soak runs in epochs. In each, senders and receivers use some queues while the broker is started repeatedly. Each
broker process is ended by SIGKILL or a power cut, sometimes during recovery. At the end of an epoch the queues are
drained, and its history is compared with the model (`checker`). A soak of any length therefore needs little memory, and
reports its findings as it runs.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ...base.disk.real import disk_usage
from ...base.errors import BrokerError, CairnError
from ...base.texts import counted
from ..lab.disks import FileSystem
from .checker import DEFECTS, Verdict, check
from .client_processes import ClientProcesses
from .history import Died, Event, read
from .servers import Server
from .wire import Settings

EPOCH_S = 60.0
_LOOK_S = 0.1
_SAMPLE_S = 0.25
_RECOVERING = 0.25
_CLIENT_DIES = 0.15
_POWER_CUT = 0.7
_WITHOUT_RECEIVERS = 0.2
_SHOWN = 5
_STORY_LINES = 20


class Ways(NamedTuple):
    """The parameters of a soak run."""

    seconds: float
    kill_every_s: float
    seed: str
    settings: Settings
    """The settings of the clients; the names of the clients begin with its name."""
    senders: int = 2
    receivers: int = 2
    patience_s: float = 120.0
    """The limit for a start, and for a drain."""


class Sample(NamedTuple):
    """The figures of one point in time."""

    at_s: float
    """The time since the soak began."""
    log_bytes: int
    """The size of the broker's directory on the disk."""
    live_bytes: int
    """Messages that were confirmed and not taken yet, as the clients know it."""
    confirmed: int


@dataclass
class SoakResult:
    """The result of a soak."""

    seed: str
    verdict: Verdict = field(default_factory=Verdict)
    kills: Counter[str] = field(default_factory=Counter)
    """`running`, `recovering`; and `power cuts`, which are among these."""
    samples: list[Sample] = field(default_factory=list)
    kills_s: list[float] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    """The duration of each start, until the broker answered."""
    seconds: float = 0.0
    unchecked: int = 0
    """Epochs that could not be brought to an end."""
    stopped_by: str = ""
    """The reason why the soak is incomplete."""
    broke_off: bool = False
    """The broker is to blame for that."""
    stories: list[str] = field(default_factory=list)
    """The first findings, each with all that was written down about it."""

    @property
    def has_passed(self) -> bool:
        return not self.verdict.found and not self.broke_off

    def line(self) -> str:
        """The verdict."""
        word = "PASSED" if self.has_passed else "FAILED"
        if self.stopped_by:
            word += f" (partial: {self.stopped_by})"
        kills, cuts = self.kills["running"] + self.kills["recovering"], self.kills["power cuts"]
        return (
            f"{word}: {counted(kills, 'kill')} ({self.kills['recovering']} while recovering, {cuts} power cuts) "
            f"in {self.seconds:.0f} s: {self.verdict.line()}; seed {self.seed}"
        )

    def as_json(self) -> dict[str, Any]:
        counts, verdict = self.verdict.counts(), self.verdict
        return {
            "verdict": "passed" if self.has_passed else "failed",
            "complete": not self.stopped_by,
            "stopped_by": self.stopped_by or None,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "kills": {"running": self.kills["running"], "recovering": self.kills["recovering"],
                      "power_cuts": self.kills["power cuts"]},
            "confirmed": verdict.confirmed,
            "in_doubt": verdict.in_doubt,
            "consumed": verdict.consumed,
            "redelivered": verdict.redelivered,
            "defects": {name: counts[name] for name in DEFECTS},
            "found": [list(found) for found in verdict.found],
            "stories": self.stories,
            "troubles": sorted({trouble.text for trouble in verdict.troubles}),
            "starts_s": [round(start_s, 3) for start_s in self.starts_s],
            "kills_s": [round(at_s, 3) for at_s in self.kills_s],
            "samples": [sample._asdict() for sample in self.samples],
        }  # fmt: skip


class Soak:
    """One soak. `stop` may be called from any thread."""

    def __init__(
        self, ways: Ways, server: Server, directory: Path, power: FileSystem | None, look: Callable[[SoakResult], None]
    ) -> None:
        """*power*: what the broker's directory is on, if its power is to be cut. *directory*: for histories."""
        self.found = SoakResult(ways.seed)
        self._ways, self._server, self._directory, self._power, self._look = ways, server, directory, power, look
        self._random = Random(ways.seed)
        self._stop = threading.Event()
        self._begun_s = self._sampled_s = self._deadline_s = 0.0
        self._life = self._epoch = 0
        self._start_s = 0.5
        self._crew: ClientProcesses | None = None

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> SoakResult:
        """Run the soak to its end, or until the broker does not restart, the disk is full, or `stop` is called."""
        self._begun_s = time.monotonic()
        found = self.found
        try:
            while not self._stop.is_set() and (not self._deadline_s or time.monotonic() < self._deadline_s):
                self._epoch += 1
                self._one_epoch()
            if self._stop.is_set():
                found.stopped_by = "interrupted"
            elif not found.verdict.confirmed:
                found.stopped_by, found.broke_off = "nothing was confirmed", True
        except BrokerError as error:
            found.stopped_by = found.stopped_by or str(error)
            found.broke_off = error.place == "the broker" or error.place.endswith("drain")
        except (CairnError, OSError) as error:
            found.stopped_by = found.stopped_by or str(error)
        finally:
            found.seconds = time.monotonic() - self._begun_s
            self._tidy_up()
        return found

    def _one_epoch(self) -> None:
        ways = self._ways
        place = self._directory / f"epoch{self._epoch}"
        place.mkdir()
        name = f"{ways.settings.name}{self._epoch}"
        rate = ways.settings.rate_per_s / ways.senders if ways.senders else 0.0
        settings = ways.settings._replace(name=name, seed=f"{ways.seed}/{self._epoch}", rate_per_s=rate)
        crew = self._crew = ClientProcesses(settings, place, ways.senders, ways.receivers)
        drained = False
        try:
            self._come_up(may_die=False)
            self._deadline_s = self._deadline_s or time.monotonic() + ways.seconds  # time runs once there is a broker
            end_s = min(time.monotonic() + EPOCH_S, self._deadline_s)
            while time.monotonic() < end_s and not self._stop.is_set():
                self._one_life(crew, end_s)
            if self._stop.is_set():
                return
            crew.end()
            self._come_up(may_die=False)
            drained = crew.drain(self._server.port, self._life, ways.patience_s, self._stop.is_set)
        finally:
            if not drained and self._server.running:
                self._server.kill()  # before the clients, or one would get what another had
            crew.kill()
            self._crew = None
            self._check(place, [Died(name, self._life, 0) for name in crew.failed], drained=drained)

    def _check(self, place: Path, failed: list[Event], *, drained: bool) -> None:
        try:
            history = read(sorted(place.glob("*.jsonl"))) + failed
        except (OSError, ValueError) as error:
            raise CairnError(str(place), f"the histories can't be read: {error}") from error
        verdict = check(history, drained=drained)
        found = self.found
        found.unchecked += not drained
        for kind, about in verdict.found[: _SHOWN - len(found.stories)]:
            found.stories.append(_story(kind, about, history))
        found.verdict.add(verdict)
        if not verdict.found:
            shutil.rmtree(place, ignore_errors=True)

    def _one_life(self, crew: ClientProcesses, end_s: float) -> None:
        random, ways = self._random, self._ways
        if not self._come_up(may_die=True):
            return
        crew.connect(self._server.port, self._life, receivers=random.random() >= _WITHOUT_RECEIVERS)
        due_s = time.monotonic() + ways.kill_every_s * random.uniform(0.2, 1.8)
        dies_s = random.uniform(time.monotonic(), due_s) if random.random() < _CLIENT_DIES else 0.0
        while (now_s := time.monotonic()) < min(due_s, end_s) and not self._stop.is_set():
            if dies_s and now_s >= dies_s:
                dies_s = 0.0
                crew.kill_one(random.randrange(len(crew.clients)), self._life)
            self._sample()
            self._server.check()
            time.sleep(min(_LOOK_S, max(0.0, due_s - now_s)))
        self._kill("running")

    def _come_up(self, *, may_die: bool) -> bool:
        """Start the broker, if it is not there; False if it was killed before it was up."""
        if self._server.running:
            return True
        random = self._random
        dies_s = 0.0
        if may_die and self.found.starts_s and random.random() < _RECOVERING:
            dies_s = time.monotonic() + random.uniform(0, 1.1) * self._start_s
        self._life += 1
        begun_s = time.monotonic()
        self._server.start()

        def look() -> bool:
            self._sample()
            return not self._stop.is_set() and not (dies_s and time.monotonic() >= dies_s)

        up = self._server.await_ready(self._ways.patience_s, look)
        if up:
            self._start_s = time.monotonic() - begun_s
            self.found.starts_s.append(self._start_s)
        elif not self._stop.is_set():
            self._kill("recovering")
        return up and not self._stop.is_set()

    def _kill(self, while_: str) -> None:
        found, power = self.found, self._power
        self._sample(now=True)
        if power is not None and (not found.kills["power cuts"] or self._random.random() < _POWER_CUT):
            self._server.freeze()  # a sync that is under way may seem to succeed when the power has gone
            power.cut(self._random)
            self._server.kill()
            power.power_on()
            found.kills["power cuts"] += 1
        else:
            self._server.kill()
        found.kills[while_] += 1
        found.kills_s.append(time.monotonic() - self._begun_s)
        self._look(found)

    def _sample(self, *, now: bool = False) -> None:
        now_s = time.monotonic()
        if now_s - self._sampled_s < _SAMPLE_S and not now:
            return
        self._sampled_s = now_s
        confirmed, confirmed_bytes, _, taken_bytes = self._crew.counted() if self._crew is not None else [0, 0, 0, 0]
        live = max(0, confirmed_bytes - taken_bytes)
        size = disk_usage(str(self._server.store))
        total = self.found.verdict.confirmed + confirmed
        self.found.samples.append(Sample(round(now_s - self._begun_s, 3), size, live, total))
        self.found.seconds = now_s - self._begun_s
        self._look(self.found)

    def _tidy_up(self) -> None:
        try:
            if self._stop.is_set() and self._server.running:
                self._server.kill()
            self._server.stop()
        except BrokerError as error:
            self.found.stopped_by = self.found.stopped_by or str(error)


def _story(kind: str, about: str, history: list[Event]) -> str:
    """A finding, and the events that show it."""
    lines = [f"{kind}: {about or 'a message without an id'}"]
    those = [
        event
        for event in history
        if getattr(event, "message", None) == about or (about and getattr(event, "txn", None) == about)
    ]
    lines += [f"    {event}" for event in sorted(those, key=lambda event: event.at)[:_STORY_LINES]]
    return "\n".join(lines)
