"""Tests of packet loss to one of three real members: it is detected, logged and measured (B3)."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.cluster.health.delays import LATE_S
from cairnmq.tools.lab.cluster_lab import PATH, Lab, unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import LabOptions, address
from tests.harness.cluster.real_cluster import PATIENCE_S, PORT, ROOT, RealScenario, end_with_parent

LOSSY = 3
LOSS_PERCENT = 35
TOKEN_MS = 4000
"""A lost token is retransmitted after a quarter of this time: only several losses in a row lose the member."""


def in_switch(lab: Lab, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = ["ip", "netns", "exec", f"{lab.name}-sw", *words]
    return subprocess.run(command, check=check, capture_output=True, text=True, env={"PATH": PATH}, timeout=60)


@contextmanager
def loss(lab: Lab, node: int, seed: int) -> Iterator[str]:
    """Lose packets from and to *node* in this context: with netem, or with `lossy_wire` if the kernel has no netem."""
    netem = ["tc", "qdisc", "add", "dev", f"p{node}", "root", "netem", "loss", f"{LOSS_PERCENT}%"]
    if not in_switch(lab, *netem, check=False).returncode:
        inside = lab.command(node, ["tc", "qdisc", "add", "dev", "eth0", "root", "netem", "loss", f"{LOSS_PERCENT}%"])
        subprocess.run(inside, check=True, capture_output=True, timeout=60, env={"PATH": PATH})
        try:
            yield "netem"
        finally:
            lab.heal()
        return
    in_switch(lab, "ip", "link", "add", "lossy0", "type", "veth", "peer", "name", "lossy1")
    for name in ("lossy0", "lossy1"):
        in_switch(lab, "ip", "link", "set", name, "up")
    in_switch(lab, "ip", "link", "set", "lossy1", "master", "br0")
    command = [sys.executable, "-m", "tests.harness.cluster.lossy_wire"]
    words = [*command, f"p{node}", "lossy0", str(LOSS_PERCENT), str(seed)]
    passing = subprocess.Popen(
        ["ip", "netns", "exec", f"{lab.name}-sw", *words], cwd=ROOT, preexec_fn=end_with_parent, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert passing.stdout is not None
        said = passing.stdout.readline()
        if said.strip() != "passing on":
            pytest.skip(f"no packet loss here: neither netem nor packet sockets: {said}{passing.stdout.read()[-500:]}")
        in_switch(lab, "ip", "link", "set", f"p{node}", "nomaster")
        yield "packet sockets"
        assert passing.poll() is None, passing.stdout.read()
    finally:
        lab.heal()
        passing.kill()
        passing.wait()
        in_switch(lab, "ip", "link", "del", "lossy0")


@pytest.mark.timeout(600)
def test_packet_loss_is_logged_and_measured_and_loses_nothing(tmp_path: Path) -> None:  # B3
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    lab = Lab(f"l{secrets.token_hex(2)}", tmp_path / "lab")
    try:
        lab.up(LabOptions(3, token_ms=TOKEN_MS))
        lossy_life(RealScenario(lab, 1, tmp_path))
    finally:
        lab.down()


class Sending(threading.Thread):
    """A client of one member that sends messages one at a time."""

    def __init__(self, scenario: RealScenario, node: int) -> None:
        super().__init__(daemon=True)
        with scenario.lab.inside(node):
            self._client = BlockingConnection(
                f"amqp://{address(node)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS"
            )
        self._sender = self._client.create_sender("q")
        self.confirmed = 0
        self.is_over = threading.Event()
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self.is_over.wait(0.02):
                self._sender.send(Message(body=b"sender1:%d" % self.confirmed, durable=True))
                self.confirmed += 1
            self._client.close()
        except Exception as error:
            self.error = error


def said(scenario: RealScenario, text: str) -> int:
    """Return the number of lines with *text* in the logs of all brokers."""
    return sum(text in line for broker in scenario.brokers.values() for line in broker.lines)


def warned(scenario: RealScenario) -> int:
    return said(scenario, "events have waited for")


def oldest_s(scenario: RealScenario) -> float:
    """Return the age of the oldest unconfirmed event, as the maximum over the metrics of all members."""
    return max(scenario.figures(node).get("cluster_oldest_unconfirmed_seconds", 0.0) for node in scenario.lab.nodes)


def lossy_life(scenario: RealScenario) -> None:
    lab = scenario.lab
    try:
        for node in lab.nodes:
            scenario.start_broker(node)
        scenario.wait(scenario.all_serve, "the members serve")
        sending = Sending(scenario, 1)
        scenario.wait(lambda: sending.confirmed >= 50 or sending.error is not None, "a client sends")
        before = warned(scenario)
        peak_s, begun_s = 0.0, time.monotonic()
        with loss(lab, LOSSY, seed=7) as how:

            def is_noticed() -> bool:
                nonlocal peak_s
                peak_s = max(peak_s, oldest_s(scenario))
                return warned(scenario) > before and peak_s >= LATE_S

            scenario.wait(is_noticed, "a warning, and the age of the oldest event")
            took_s = time.monotonic() - begun_s
            during = sending.confirmed
        scenario.wait(lambda: sending.confirmed >= during + 50 or sending.error is not None, "the client gets on")
        sending.is_over.set()
        sending.join(PATIENCE_S)
        assert sending.error is None
        scenario.wait(scenario.all_serve, "all serve")
        scenario.wait(scenario.is_quiet, "they come to rest")
        scenario.wait(lambda: oldest_s(scenario) < 1, "nothing is late any more")
        assert said(scenario, "events are acknowledged by a majority again")
        print(f"{LOSS_PERCENT} % by {how}: noticed after {took_s:.1f} s, oldest event {peak_s:.1f} s")
        contents = scenario.stopped()
        assert [len({*contents[node]["q"]}) for node in lab.nodes] == [sending.confirmed] * 3
    finally:
        scenario.end()
