"""Tests of clear errors if corosync is missing, stopped, inaccessible, or paused, or floods a broker."""

from __future__ import annotations

import os
import secrets
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cairnmq.base.clock import SystemClock
from cairnmq.cluster.group import corosync_library
from cairnmq.cluster.group.bus import BusChange, BusEvent, BusMessage
from cairnmq.cluster.group.corosync import CorosyncBus
from cairnmq.cluster.group.group import GroupError
from cairnmq.cluster.group.group_events import GroupFailed
from cairnmq.cluster.group.member import GroupMember
from cairnmq.tools.lab.cluster_lab import Lab, unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import LabOptions
from tests.harness.cluster.child_process import in_child
from tests.harness.cluster.group_harness import NODES, CorosyncEngine, GroupHarness, NamespaceBus, payloads


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    made = Lab(f"c{secrets.token_hex(2)}", Path(tmp_path_factory.mktemp("labs")))
    made.up(LabOptions(len(NODES)))
    yield made
    made.down()


class Libraries:
    """A stand-in for `ffi` without any installed library."""

    def dlopen(self, name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    corosync_library.load.cache_clear()
    monkeypatch.setattr(corosync_library, "ffi", Libraries())
    with pytest.raises(GroupError, match=r"libcpg.so.4: not installed; apt-get install corosync libcpg4"):
        CorosyncBus().join("test")
    corosync_library.load.cache_clear()


def test_not_running(lab: Lab) -> None:
    lab.stop(3)
    try:
        with pytest.raises(GroupError, match="corosync: not running; start it"):
            NamespaceBus(lab, 3, 3).join("test")
    finally:
        lab.start(3)


def test_not_permitted(lab: Lab) -> None:
    kept = []

    def join() -> None:
        there = lab.inside(1)
        there.__enter__()  # never exited, as only root can go back
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        kept.append(there)
        CorosyncBus().join("test")

    assert in_child(join).startswith("GroupError: corosync: access denied for this user; write uidgid {")


def test_a_small_stack_is_refused_before_it_kills() -> None:
    threading.stack_size(256 * 1024)
    try:
        with pytest.raises(GroupError, match="256 KiB of stack"):
            CorosyncBus().join("test")
    finally:
        threading.stack_size(0)


@pytest.mark.parametrize("name", ["", "x" * 129, "ü" * 65])
def test_names(name: str) -> None:
    with pytest.raises(GroupError, match="1 to 128 bytes"):
        CorosyncBus().join(name)


def test_the_nodelist_says_how_many_members_there_should_be(lab: Lab) -> None:
    bus = NamespaceBus(lab, 2, 0)
    bus.join("test-count")
    assert (bus.configured, bus.address) == (3, (2, os.getpid()))
    bus.close()
    bus.close()


def test_a_flood_and_a_callback_that_raises(lab: Lab) -> None:  # rule 18
    class Raising(NamespaceBus):
        left = 50

        def _delivered(self, handle: int, name: Any, node: int, pid: int, message: Any, size: int) -> None:
            self.left -= 1
            if self.left < 0:
                raise MemoryError("no room for it")
            super()._delivered(handle, name, node, pid, message, size)

    harness = GroupHarness(CorosyncEngine(lab), patience_s=180)
    harness.form(1, 2)
    bad = GroupMember(Raising(lab, 3, 3), SystemClock())
    bad.join(harness.name)
    harness.members[3], harness.received[3] = bad, []
    harness.until(lambda: harness.together(*NODES), "they are a group")
    for number in range(300):
        harness.say(1, b"%d" % number * 100)
        harness.members[1].flush()
        harness.step()
    harness.until(lambda: bool(harness.received[3]) and isinstance(harness.received[3][-1], GroupFailed), "it ends")
    assert harness.received[3][-1] == GroupFailed("a callback from corosync failed: MemoryError('no room for it')")
    harness.remove(3)
    harness.until(lambda: harness.together(1, 2), "the others go on")
    harness.add(3)
    harness.until(lambda: harness.together(*NODES), "it is back")
    harness.close()


def test_a_paused_daemon_holds_nobody_who_leaves(lab: Lab) -> None:
    """A broker shuts down even if the daemon does not answer its request to leave."""
    bus = NamespaceBus(lab, 3, 3)
    bus.join("goodbye")
    lab.pause(3)
    try:
        ended = threading.Thread(target=bus.close, daemon=True)
        ended.start()
        ended.join(180)
        assert not ended.is_alive()
    finally:
        lab.resume(3)


def test_a_start_beside_a_paused_daemon_ends_with_its_reason(lab: Lab) -> None:
    lab.pause(3)
    try:
        with pytest.raises(GroupError, match=r"corosync: it is running, but has not answered for 1 s; it is paused or"):
            NamespaceBus(lab, 3, 3, answer_s=1.0).join("start")
    finally:
        lab.resume(3)
    bus = NamespaceBus(lab, 3, 3)
    bus.join("start")
    heard_until(bus, lambda received: any(isinstance(event, BusChange) for event in received))
    bus.close()


def test_who_has_to_join_anew_beside_a_paused_daemon_goes_on_and_says_so(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    bus = NamespaceBus(lab, 3, 3, answer_s=0.5)
    bus.join("anew")
    heard_until(bus, lambda received: any(isinstance(event, BusChange) for event in received))
    lab.pause(3)
    try:
        bus.rejoin()
        bus.rejoin()  # a repeated request is allowed
        heard_until(bus, lambda received: "corosync: it is running, but has not answered for" in caplog.text)
        assert not bus.send(b"nobody hears it")
    finally:
        lab.resume(3)
    received = heard_until(bus, lambda received: any(isinstance(event, BusChange) for event in received))
    assert bus.address in [event for event in received if isinstance(event, BusChange)][-1].members
    assert "corosync: it answers again" in caplog.text
    assert bus.send(b"here I am")
    heard_until(bus, lambda received: BusMessage(bus.address, b"here I am") in received)
    bus.close()


def test_who_ends_while_it_joins_beside_a_paused_daemon_leaves_nothing(lab: Lab) -> None:
    bus = NamespaceBus(lab, 3, 3)
    bus.join("gone")
    heard_until(bus, lambda received: any(isinstance(event, BusChange) for event in received))
    lab.pause(3)
    try:
        bus.rejoin()
        bus.close()
    finally:
        lab.resume(3)
    other = NamespaceBus(lab, 1, 3)
    other.join("gone")
    heard_until(
        other,
        lambda events: [event.members for event in events if isinstance(event, BusChange)][-1:] == [{other.address}],
    )
    other.close()


def heard_until(bus: CorosyncBus, condition: Callable[[list[BusEvent]], bool]) -> list[BusEvent]:
    received: list[BusEvent] = []
    until = time.monotonic() + 180
    while not condition(received):
        assert time.monotonic() < until, received
        select.select([bus], [], [], bus.wait_s() or 0.02)
        received += bus.poll(100)
    return received


def says(lab: Lab, node: int, wanted: str) -> bool:
    """Wait until the status of *node* begins with *wanted*; a busy daemon may not answer, or differ for a moment."""
    lab.wait(
        lambda: str(lab.status()[node - 1]).startswith(f"node {node}: {wanted}"), f"node {node} does not say {wanted!r}"
    )
    return True


@pytest.mark.parametrize("crypto", ["another key", "none"])
def test_a_daemon_without_the_key_is_not_heard(lab: Lab, crypto: str) -> None:
    """No message of the daemon without the key reaches another node, and it receives none."""
    conf, other = lab.directory / "3" / "corosync.conf", lab.directory / "3" / "authkey"
    kept = conf.read_text()
    assert "crypto_cipher: aes256" in kept
    if crypto == "none":
        changed = kept.replace("aes256", "none").replace("sha256", "none")
    else:
        other.write_bytes(secrets.token_bytes(256))
        changed = kept.replace(str(lab.directory / "authkey"), str(other))
    harness = GroupHarness(CorosyncEngine(lab), patience_s=180)
    harness.form(*NODES)
    lab.stop(3)
    harness.until(lambda: harness.together(1, 2), "it is gone")
    harness.remove(3)
    conf.write_text(changed)
    try:
        lab.start(3)
        stranger = harness.add(3)
        for number in range(20):
            payload = b"%d" % number
            stranger.multicast(payload)
            harness.say(1, payload)
            harness.all_heard(payload, 1, 2)
        assert stranger.me is None
        assert not payloads(harness.received[3])
        assert harness.together(1, 2)
        assert says(lab, 3, "not quorate, sees 1 of 3")
        assert says(lab, 1, "quorate, sees 2 of 3")
    finally:
        conf.write_text(kept)
        lab.stop(3)
        lab.start(3)
        lab.wait_complete()
    harness.add(3)
    harness.until(lambda: harness.together(*NODES), "with the key it is let in")
    harness.close()
