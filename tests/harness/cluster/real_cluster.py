"""A scenario of a real cluster, drawn from a seed: corosync, brokers and clients are processes in a lab.

While clients send and receive, brokers and daemons are killed, stopped and paused, nodes are partitioned, links are cut
in one direction, and clients are killed. Then everything is repaired: every client must make progress, all members must
store the same messages on every queue, and `guarantees` must hold for the records of the clients. Finally the whole
cluster is restarted from its disks and drained, with the same result.

    python -m tests.harness.cluster.real_cluster SEED [RUNS]

prints the seeds that fail, and keeps the records of their clients. It needs root and corosync. All processes that it
starts end with it, even if it is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path

from proton import symbol
from proton.utils import BlockingConnection

from cairnmq.base.clock import SystemClock
from cairnmq.recovery.recover import open_store
from cairnmq.tools.lab.cluster_lab import Lab, unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import LabOptions, address
from cairnmq.tools.soak.history import Confirmed, Got, Settled
from tests.harness.cluster import guarantees as promises
from tests.harness.process import BrokerProcess

ROOT = Path(__file__).parents[3]
PORT, METRICS = 5672, 9100
QUEUES = ("q", "r")
PATIENCE_S = 180.0
SILENCE_S = 120.0
"""The silence after which a member is expelled: long enough for a busy machine."""
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Broken(AssertionError):
    """A violated property, or a timeout."""


def end_with_parent() -> None:
    """Make the kernel kill this child process when its parent ends for any reason."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ClientProcess:
    """A process of `failover_client`."""

    def __init__(self, lab: Lab, node: int, role: str, name: str, seed: str, queue: str, directory: Path) -> None:
        self.role, self.name, self.node, self.queue = role, name, node, queue
        self.notebook = directory / f"{name}.jsonl"
        self.errors = directory / f"{name}.err"
        places = [f"{address(each)}:{PORT}" for each in lab.nodes]
        words = [
            sys.executable, "-m", "tests.harness.cluster.failover_client", role, name, seed, queue, str(self.notebook),
            *places,
        ]  # fmt: skip
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                lab.command(node, words), cwd=ROOT, stdin=subprocess.PIPE, stdout=errors, stderr=errors,
                preexec_fn=end_with_parent,
            )  # fmt: skip

    def noted(self, kind: str) -> int:
        """Return the number of events of *kind* in the notebook."""
        if not self.notebook.exists():
            return 0
        return self.notebook.read_bytes().count(b'["%s"' % kind.encode())

    def ended(self) -> bool:
        """Return whether the process has exited; raise `Broken` if its status is not 0."""
        status = self.process.poll()
        if status:
            raise Broken(f"client {self.name} failed: {self.errors.read_text()[-2000:]}")
        return status is not None


class RealScenario:
    """One run of the scenario on a lab."""

    def __init__(
        self, lab: Lab, seed: int, directory: Path, faults_s: float = 12.0, options: Sequence[str] = ()
    ) -> None:
        """*options*: additional options of each broker."""
        self.lab = lab
        self.seed = seed
        self.directory = directory
        self.faults_s = faults_s
        self.options = options
        self.random = random.Random(seed)
        self.brokers: dict[int, BrokerProcess] = {}
        self.clients: list[ClientProcess] = []
        self.paused: set[int] = set()
        """Nodes whose broker is paused by SIGSTOP."""
        self.story: list[str] = []
        self.met: Counter[str] = Counter()
        self._begun_s = time.monotonic()
        self._count = 0

    # ---- scenario -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:
            raise Broken(
                f"seed {self.seed}: {error}\n" + "\n".join(self.story) + "\n"
                f"what was written down: {self.directory}\n"
                f"again: python -m tests.harness.cluster.real_cluster {self.seed}"
            ) from error
        finally:
            self.end()

    def _run(self) -> None:
        for node in self.lab.nodes:
            self.start_broker(node)
        self.wait(self.all_serve, "the members serve")
        for queue in QUEUES:
            self.begin_client("sender", queue)
            self.begin_client("receiver", queue)
        self.begin_client("sender", QUEUES[0])
        self.begin_client("receiver", QUEUES[0])
        self.get_on("before anything fails")
        end_s = time.monotonic() + self.faults_s
        while time.monotonic() < end_s:
            self.fault()
            self.lives_on(self.random.choice((0.1, 0.5, 1.0, 2.5)))
            if self.random.random() < 0.5:
                self.mend_something()
        self.mend()
        self.wait(self.serve_again, "they serve again")
        self.get_on("after all is mended")
        self.end_clients()
        self.wait(self.is_quiet, "they come to rest")
        contents = self.stopped()
        history = promises.read(self.directory)
        self.met["confirmed"] += sum(isinstance(event, Confirmed) for event in history)
        self.met["settled"] += sum(isinstance(event, Settled) for event in history)
        self.hold(promises.broken(history, contents))
        self.drain(contents)

    def drain(self, contents: dict[int, promises.Contents]) -> None:
        """Restart the cluster from its disks, and check that drains receive exactly the messages in *contents*."""
        for node in self.lab.nodes:
            self.start_broker(node)
        self.wait(self.all_serve, "they serve after a start of all")
        for queue in QUEUES:
            self.begin_client("drain", queue)
        self.wait(
            lambda: all(client.noted("Got") >= len(contents[1].get(client.queue, ())) for client in self.clients),
            "each drain gets as many as there are",
        )
        self.end_clients()  # drains wait for unexpected messages before they exit
        self.wait(self.is_quiet, "they come to rest")
        left = self.stopped()
        history = promises.read(self.directory)
        self.hold(promises.broken(history, left))
        got = {event.message for event in history if isinstance(event, Got) and event.session.startswith("drain")}
        there = {message for messages in contents[1].values() for message in messages}
        if got != there or any(queue for each in left.values() for queue in each.values()):
            raise Broken(f"after a start of all {len(there - got)} do not come, {len(got - there)} are new")

    def hold(self, found: list[str]) -> None:
        if found:
            raise Broken("; ".join(found))

    def end(self) -> None:
        for client in self.clients:
            client.process.kill()
            client.process.wait()
        for broker in self.brokers.values():
            if broker.process.poll() is None:
                broker.stop(signal.SIGKILL)
        self.mend_lab()

    # ---- processes ------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self.story.append(f"{time.monotonic() - self._begun_s:6.2f} {text}")
        self.met[text.split()[0]] += 1

    def start_broker(self, node: int, silence_s: float = SILENCE_S) -> None:
        self.brokers[node] = BrokerProcess(
            self.directory / f"store{node}",
            "--listen", address(node), "--port", str(PORT), "--anonymous", "--anonymous", "--idle-timeout", "5",
            "--metrics-port", str(METRICS), "--cluster-name", f"s{self.seed}",
            "--cluster-silence", str(silence_s), *self.options,
            within=lambda command: self.lab.command(node, command), preexec=end_with_parent,
        )  # fmt: skip

    def begin_client(self, role: str, queue: str) -> None:
        self._count += 1
        node = self.random.choice(self.lab.nodes)
        name = f"{role}{self._count}"
        self.clients.append(ClientProcess(self.lab, node, role, name, str(self.seed), queue, self.directory))

    def lives_on(self, seconds: float) -> None:
        """Sleep, then check that brokers ended by themselves only because their corosync ended or does not run."""
        time.sleep(seconds)  # the processes of the scenario run meanwhile
        for node, broker in self.brokers.items():
            if broker.process.poll() is not None and node not in self.paused and broker.process.returncode > 0:
                broker.wait()  # reads the rest of its output
                said = broker.lines[-1] if broker.lines else ""
                if "corosync ended" not in said and "corosync: not running" not in said:
                    raise Broken(f"broker {node} ended by itself: {broker.lines[-12:]}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end_s:
                said = {node: broker.lines[-5:] for node, broker in self.brokers.items()}
                raise Broken(f"not within {PATIENCE_S:.0f} s: {what}; {[*map(str, self.lab.status())]}; {said}")
            self.lives_on(0.1)

    # ---- state of members and clients -----------------------------------------------------------------------------

    def figures(self, node: int) -> dict[str, float]:
        try:
            with self.lab.inside(node), urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics", timeout=5) as got:
                text = got.read().decode()
        except (OSError, HTTPException):  # the broker may end while it answers
            return {}
        return {name: float(value) for name, value in re.findall(r"^cairnmq_(cluster_\w+) (\S+)$", text, re.MULTILINE)}

    def all_serve(self) -> bool:
        return all(self.figures(node).get("cluster_serving") == 1.0 for node in self.lab.nodes)

    def tells_of_others(self, node: int) -> bool:
        """Return whether the failover list of *node* has all other members, whose addresses may arrive late."""
        with self.lab.inside(node):
            client = BlockingConnection(f"{address(node)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")
        told = (client.conn.remote_properties or {}).get(symbol("failover-server-list"), [])
        client.close()
        return len(told) == len(self.lab.nodes) - 1

    def serve_again(self) -> bool:
        """Restart brokers that ended with their daemons, as a supervisor does; return whether all members serve."""
        for node, broker in [*self.brokers.items()]:
            if broker.process.poll() is not None:
                self.note(f"start broker {node}")
                self.start_broker(node)
        return self.all_serve()

    def is_quiet(self) -> bool:
        for node in self.lab.nodes:
            found = self.figures(node)
            complete = found.get("cluster_following_members") == len(self.lab.nodes)
            if not complete or found["cluster_waiting_events"] or found["cluster_in_flight_bytes"]:
                return False
        return True

    def get_on(self, when: str) -> None:
        """Wait until every client has made progress."""
        before = {client.name: self.done_by(client) for client in self.clients}
        self.wait(
            lambda: all(self.done_by(client) > before[client.name] for client in self.clients),
            f"each client gets on {when}",
        )

    def done_by(self, client: ClientProcess) -> int:
        if client.process.poll() is not None:
            client.ended()
        return client.noted("Confirmed" if client.role == "sender" else "Settled")

    def end_clients(self) -> None:
        """End all clients, senders first so that receivers have messages; wait until each has its outcomes."""
        for role in ("sender", "receiver", "drain"):
            some = [client for client in self.clients if client.role == role]
            for client in some:
                assert client.process.stdin is not None
                client.process.stdin.close()
            self.wait(lambda some=some: all(client.ended() for client in some), f"each {role} ends")  # type: ignore[misc]
        self.clients.clear()

    def stopped(self) -> dict[int, promises.Contents]:
        """Stop all members gracefully in random order; return the contents of each."""
        for node in self.random.sample([*self.lab.nodes], len(self.lab.nodes)):
            broker = self.brokers.pop(node)
            status = broker.stop()
            if status or "everything is on the disk" not in broker.lines[-1]:
                raise Broken(f"broker {node} does not stop well: {status}, {broker.lines[-5:]}")
        return {node: self.contents(node) for node in self.lab.nodes}

    def contents(self, node: int) -> promises.Contents:
        store, _ = open_store(str(self.directory / f"store{node}"), SystemClock())
        try:
            names = {row.id: row.name for row in store.queues()}
            return {
                names[queue_id]: [self.id_of(store.load_piece(message_id, 0)) for message_id in message_ids]
                for queue_id, message_ids in store.messages().items()
                if names.get(queue_id) in QUEUES
            }
        finally:
            store.close()

    @staticmethod
    def id_of(content: bytes) -> str:
        found = re.search(rb"(?:sender)\d+:\d+", content[:300])
        return found[0].decode() if found else ""

    # ---- faults ---------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        lab, draw = self.lab, self.random.random()
        node = self.random.choice(lab.nodes)
        broker = self.brokers[node]
        runs, has_daemon = broker.process.poll() is None, bool(lab.pid(node))
        if draw < 0.25 and runs:
            self.note(f"kill broker {node}")
            broker.stop(signal.SIGKILL)
            self.paused.discard(node)
        elif draw < 0.35 and has_daemon:
            self.note(f"kill-daemon {node}")
            lab.kill(node)
        elif draw < 0.50 and runs:
            self.note(f"pause broker {node}")
            broker.process.send_signal(signal.SIGSTOP)
            self.paused.add(node)
        elif draw < 0.60 and has_daemon:
            self.note(f"pause-daemon {node}")
            lab.pause(node)
        elif draw < 0.75:
            self.note(f"partition {node}")
            lab.partition([node], [each for each in lab.nodes if each != node])
        elif draw < 0.85:
            egress = self.random.random() < 0.6
            self.note(f"cut {node} {'out' if egress else 'in'}")
            lab.cut(node, egress)
        elif draw < 0.92 and runs and node not in self.paused:
            self.note(f"stop broker {node}")
            broker.stop()
        else:
            self.note("kill-client")
            client = self.clients.pop(self.random.randrange(len(self.clients)))
            client.process.kill()
            client.process.wait()
            self.begin_client(client.role, client.queue)

    def mend_something(self) -> None:
        if self.random.random() < 0.5:
            self.note("heal")
            self.lab.heal()
        self.wake(self.random.choice(self.lab.nodes))

    def wake(self, node: int) -> None:
        broker = self.brokers[node]
        if node in self.paused:
            self.note(f"resume broker {node}")
            self.paused.discard(node)
            broker.process.send_signal(signal.SIGCONT)
        if self.lab.pid(node):
            self.lab.resume(node)
        else:
            self.note(f"start-daemon {node}")
            self.lab.start(node)
        if broker.process.poll() is not None:
            self.note(f"start broker {node}")
            self.start_broker(node)

    def mend(self) -> None:
        self.note("mend everything")
        self.lab.heal()
        for node in self.lab.nodes:
            self.wake(node)

    def mend_lab(self) -> None:
        """Repair the lab for the next scenario."""
        self.lab.heal()
        for node in self.lab.nodes:
            if self.lab.pid(node):
                self.lab.resume(node)
            else:
                self.lab.start(node)


@contextlib.contextmanager
def three_node_lab(directory: Path) -> Iterator[Lab]:
    """Provide a lab of three nodes, and remove it at the end."""
    lab = Lab(f"r{secrets.token_hex(2)}", directory)
    try:
        lab.up(LabOptions(3))
        yield lab
    finally:
        lab.down()


@contextlib.contextmanager
def real_scenario(directory: Path, *options: str) -> Iterator[RealScenario]:
    """Provide a scenario of three serving members, and end it. *options*: additional options of each broker."""
    with three_node_lab(directory / "lab") as lab:
        scenario = RealScenario(lab, 1, directory, options=options)
        try:
            for node in lab.nodes:
                scenario.start_broker(node)
            scenario.wait(scenario.all_serve, "the members serve")
            yield scenario
        finally:
            scenario.end()


def main() -> None:
    first, runs = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    reason = unavailable_reason()
    if reason:
        sys.exit(f"no real cluster: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    met: Counter[str] = Counter()
    failed = 0
    directory = Path(tempfile.mkdtemp(prefix="cairn-real-"))
    try:
        with three_node_lab(directory / "lab") as lab:
            for seed in range(first, first + runs):
                place = directory / str(seed)
                place.mkdir()
                scenario = RealScenario(lab, seed, place)
                try:
                    scenario.run()
                except Broken as error:
                    failed += 1
                    print(error, flush=True)
                else:
                    shutil.rmtree(place)
                    print(f"seed {seed}: {dict(scenario.met)}", flush=True)
                met += scenario.met
    finally:
        with contextlib.suppress(OSError):
            directory.rmdir()
    print(f"{runs} runs from seed {first}, {failed} failed: {dict(met)}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
