"""Tests of failover with clients of other libraries, whose cluster member is killed or stopped.

A program for each library gets the address of one member or of all, and learns the others when it connects:

    send ADDRESS COUNT HOST:PORT...       prints `at N` for each 100 confirmed; sends unconfirmed messages again
    receive ADDRESS COUNT HOST:PORT...    prints `got N first|again` for each message, `settled N` for each settlement

Messages are numbered by their ID. Both print `open N` for each connection that lists N other members. A sender sends
the second half only on another connection than the first one, and ends when all is confirmed. A receiver accepts each
message ten later, on the connection that delivered it, and ends when it has accepted COUNT different ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from proton import Message

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.clients.peers import Peer
from tests.harness.cluster.real_cluster import PORT, RealScenario, end_with_parent, real_scenario

from .programs import HERE, Program

pytestmark = pytest.mark.timeout(900)

COUNT = 300
STOPPED_AT = 100
MOST_UNDER_WAY = 20
HERS, OURS = 1, 3
"""Numbers of the member whose address the client gets, and of the member on whose host client and test connect."""


@pytest.fixture(scope="module")
def one_life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealScenario]:
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with real_scenario(tmp_path_factory.mktemp("life")) as made:
        yield made


@pytest.fixture
def life(one_life: RealScenario) -> RealScenario:
    """Return a cluster whose members all serve and announce the others, also the one that the previous test stopped."""
    one_life.wait(one_life.serve_again, "they serve again")
    one_life.wait(lambda: one_life.tells_of_others(HERS), "it knows the others")
    return one_life


@pytest.fixture
def cpp_client(cpp_failover: Program) -> Program:
    return cpp_failover


def on_node(rhea: Program, source: str) -> Program:
    (node, _), environment = rhea
    return [node, str(HERE / source)], environment


@pytest.fixture
def rhea_client(rhea: Program) -> Program:
    return on_node(rhea, "failover.js")


@pytest.fixture
def rhea_promise_client(rhea: Program) -> Program:
    return on_node(rhea, "failover_promise.js")


@pytest.fixture
def azure_client() -> Program:
    pytest.importorskip("azure.servicebus._pyamqp", reason="pip install '.[interop]'")
    return [sys.executable, str(HERE / "failover_azure.py")], {}


@pytest.fixture(
    params=[
        "cpp",
        pytest.param("rhea", marks=pytest.mark.interop),
        pytest.param("rhea_promise", marks=pytest.mark.interop),
        "azure",
    ]
)
def client(request: pytest.FixtureRequest) -> Program:
    chosen: Program = request.getfixturevalue(f"{request.param}_client")
    return chosen


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """Return the address of the test's own queue."""
    return str(request.node.name)


@contextmanager
def started(life: RealScenario, program: Program, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Yield the program, run on a member's host; wait until it ends, and check that it succeeded."""
    command, environment = program
    with subprocess.Popen(
        life.lab.command(OURS, [*command, *map(str, arguments)]), env={**os.environ, **environment},
        stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent,
    ) as client:  # fmt: skip
        try:
            yield client
        except BaseException:
            client.kill()
            raise
    assert client.returncode == 0


@contextmanager
def connected(life: RealScenario) -> Iterator[Peer]:
    with life.lab.inside(OURS):
        peer = Peer(PORT, host=address(OURS))
    yield peer
    peer.close()


def sent_away(life: RealScenario) -> list[str]:
    """Return the log lines of the surviving members that report disconnected clients.

    Group communication daemons that get no CPU time for a second lose contact with each other.
    """
    return [line for node in (2, 3) for line in life.brokers[node].lines if "clients are disconnected" in line]


def numbered(numbers: range) -> list[Message]:
    """Return messages with these numbers as IDs."""
    return [Message(id=number, durable=True, first_acquirer=True, body=b"") for number in numbers]


def sends(life: RealScenario, program: Program, queue: str, known: int) -> None:
    """Check the sender of *program*, which gets the addresses of *known* members, while its member is killed."""
    places = [f"{address(node)}:{PORT}" for node in (1, 2, 3)[:known]]
    with started(life, program, "send", queue, COUNT, *places) as client:
        assert client.stdout is not None
        said = []
        for line in client.stdout:
            said.append(line.strip())
            if line == f"at {STOPPED_AT}\n":
                life.brokers[HERS].stop(signal.SIGKILL)
    assert [line for line in said if line.startswith("at")] == [f"at {at}" for at in range(100, COUNT + 1, 100)]
    assert said[0] == "open 2"
    assert sum(line.startswith("open") for line in said) == 2 or sent_away(life), said
    with connected(life) as peer:
        found = [received.message.id for received in peer.drain(peer.receiver(queue), 2 * COUNT)]
    once = list(dict.fromkeys(found))
    assert once == list(range(COUNT))
    assert len(found) - len(once) <= MOST_UNDER_WAY


def test_it_sends_on(life: RealScenario, client: Program, queue: str) -> None:  # D1, D28, D36
    """All messages are confirmed and stored in order; only those that were unconfirmed may be stored twice."""
    sends(life, client, queue, 1)


def test_it_sends_on_if_it_knows_all(life: RealScenario, cpp_client: Program, queue: str) -> None:  # D1, D28
    sends(life, cpp_client, queue, 3)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_it_receives_on(
    life: RealScenario, client: Program, queue: str, how: signal.Signals
) -> None:  # D2, D3, D4, D36
    """All messages arrive, in order on each connection; redeliveries are marked, and settled messages do not return."""
    said = []
    with connected(life) as peer:
        sender = peer.sender(queue)
        peer.send(sender, *numbered(range(COUNT // 2)))
        with started(life, client, "receive", queue, COUNT, f"{address(HERS)}:{PORT}") as running:
            assert running.stdout is not None
            got = 0
            for line in running.stdout:
                said.append(line.split())
                got += line.startswith("got")
                if got == STOPPED_AT and line.startswith("got"):
                    life.brokers[HERS].stop(how)
                    peer.send(sender, *numbered(range(COUNT // 2, COUNT)))
        assert peer.drain(peer.receiver(queue), COUNT) == []
    hold_to_the_promises(life, said)


def hold_to_the_promises(life: RealScenario, said: list[list[str]]) -> None:
    lives: list[list[tuple[int, bool]]] = []
    """Messages received on each connection, each with True if it was marked as a redelivery."""
    seen: set[int] = set()
    settled: set[int] = set()
    for verb, *words in said:
        number = int(words[0])
        if verb == "open":
            lives.append([])
        elif verb == "settled":
            settled.add(number)
        else:
            assert verb == "got"
            lives[-1].append((number, words[1] == "again"))
            assert number not in settled
            assert number not in seen or words[1] == "again"
            seen.add(number)
    assert said[0] == ["open", "2"]
    assert len(lives) == 2 or sent_away(life), said
    assert seen == set(range(COUNT))
    for came in lives:  # in order, but the failed member's unsettled messages may follow available ones of others
        back = [is_marked for (before, _), (after, is_marked) in pairwise(came) if after < before]
        assert back in ([], [True]), came
