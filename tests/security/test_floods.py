"""Tests of the limits for one client: sizes, depths, ranges and floods are bounded, and other clients are served."""

from __future__ import annotations

import ast
import gc
import resource
import struct
import time
from pathlib import Path

import pytest
from proton import Message

from cairnmq.amqp.codec import header
from cairnmq.amqp.codec.decode import read_items
from cairnmq.amqp.codec.primitives import descriptor
from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.process import broker as broker_process
from tests.harness.security.wire import (
    AMQP,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FALSE,
    NULL,
    OPEN,
    TRANSFER,
    TRUE,
    attach,
    flow,
    frame,
    message,
    performative,
    source,
    string,
    symbol,
    target,
    transfer,
    uint,
    wired,
)  # fmt: skip

from .conftest import StartBroker, assert_serves

ROOT = Path(__file__).parents[2]


def nested(levels: int, how: str) -> bytes:
    """Return a value with *levels* nested levels, built directly from its encoding."""
    if how == "described":
        return b"\x00\xa3\x01x" * levels + b"\x40"
    heads, size = [], 1
    for level in range(levels):
        if how == "array":  # the constructor precedes the elements
            heads.append(struct.pack(">II", 9 * level + 5, 1) + (b"\xf0" if level else b"\x40"))
        else:
            key = b"\x40" if how == "map" else b""
            size += 4 + len(key)
            heads.append((b"\xd1" if key else b"\xd0") + struct.pack(">II", size, 1 + len(key)) + key)
            size += 5
    return (b"\xf0" if how == "array" else b"") + b"".join(reversed(heads)) + (b"" if how == "array" else b"\x40")


def places(value: bytes) -> dict[str, list[bytes]]:
    """Return frames with *value* at each position where proton may read it."""
    opened = performative(OPEN, string("deep"))
    begun = performative(BEGIN, NULL, uint(0), uint(99), uint(99))
    linked = attach("l", 0, "orders", sends=False)
    error = performative(0x1D, symbol("x:y"), string("z"), value)
    inner = performative(0x28, string("orders"), *[NULL] * 6, value, value, value, value)
    outer = performative(0x29, string("orders"), *[NULL] * 4, value, value)
    reads = (string("l"), uint(0), TRUE, NULL, NULL)
    sends = (string("l"), uint(0), FALSE, NULL, NULL)

    def outcome(state: bytes) -> list[bytes]:
        return [opened, begun, linked, performative(DISPOSITION, TRUE, uint(0), NULL, TRUE, state)]

    several = (value, NULL, NULL, NULL, value, value, value)
    return {
        "open": [performative(OPEN, string("deep"), *[NULL] * 6, value, value, value)],
        "begin": [opened, performative(BEGIN, NULL, uint(0), uint(99), uint(99), NULL, value, value, value)],
        "attach": [opened, begun, performative(ATTACH, *reads, source("orders"), target("me"), *several)],
        "source": [opened, begun, performative(ATTACH, *reads, inner, target("me"))],
        "target": [opened, begun, performative(ATTACH, *sends, source("me"), outer, NULL, NULL, uint(0))],
        "state": outcome(value),
        "rejected": outcome(performative(0x25, error)),
        "modified": outcome(performative(0x27, TRUE, TRUE, value)),
        "detach": [opened, begun, linked, performative(DETACH, uint(0), TRUE, error)],
        "end": [opened, begun, performative(END, error)],
        "close": [opened, performative(CLOSE, error)],
    }


@pytest.mark.parametrize("how", ["list", "map", "array", "described"])
def test_deep_nesting_ends_nothing(tmp_path: Path, how: str) -> None:  # A2
    """Nesting up to the maximum of a 64 KiB frame does not overflow the stack of a separate broker process."""
    levels = {"list": 6_000, "map": 5_000, "array": 5_900, "described": 13_000}[how]
    with broker_process(tmp_path / "data") as running:
        with wired(running.port) as first:
            first.open().attach("out", 0, "orders", sends=True)
            first.say(transfer(0, message()))
            first.until(DISPOSITION)
        frames_of = places(nested(levels // 3, how))
        frames_of.update(
            {
                f"{name}, once": frames
                for name, frames in places(nested(levels, how)).items()
                if name in ("close", "end")
            }
        )
        for name, frames in frames_of.items():
            with wired(running.port) as wire:
                wire.send(AMQP + b"".join(frame(body) for body in frames) + frame(performative(CLOSE)))
                assert wire.rest().startswith(AMQP), name
            assert running.process.poll() is None, name
        assert_serves(running.port)


def test_sizes_are_checked_before_memory_is_taken(open_to_all: RunningBroker) -> None:  # A1
    """Sizes of gigabytes and arrays of a billion zero-width values do not allocate memory."""
    huge = 0x3FFFFFFF
    claims = [
        b"\xd0" + struct.pack(">II", huge, huge),
        b"\xd1" + struct.pack(">II", huge, huge),
        b"\xb0" + struct.pack(">I", huge),
        b"\xb1" + struct.pack(">I", 0xFFFFFFFF),
        b"\xf0" + struct.pack(">II", 5, huge) + b"\x40",
        b"\xf0" + struct.pack(">II", 5, huge) + b"\x45",
        b"\xc0\xff\xff",
    ]
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for claim in claims:
        for name, frames in places(claim).items():
            with wired(open_to_all.port) as wire:
                wire.send(AMQP + b"".join(frame(body) for body in frames) + frame(performative(CLOSE)))
                assert wire.rest().startswith(AMQP), name
    with wired(open_to_all.port) as wire:
        wire.open().attach("out", 0, "orders", sends=True)
        for number, claim in enumerate(claims):
            wire.say(transfer(number, b"\x00\x53\x70" + claim))
        wire.say(performative(END))
        wire.until(END)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 << 10
    assert_serves(open_to_all.port)


def test_nothing_is_kept_of_what_clients_make_up(open_to_all: RunningBroker) -> None:  # A3
    """The broker keeps no symbols, AMQP container IDs or link names of closed connections, and caches few headers."""

    def pass_by(number: int) -> None:
        with wired(open_to_all.port) as wire:
            wire.send(AMQP)
            wire.say(
                performative(
                    OPEN,
                    string(f"made-up-c{number}"),
                    *[NULL] * 6,
                    symbol(f"made-up-s{number}"),
                    symbol(f"made-up-t{number}"),
                ),
                performative(BEGIN, NULL, uint(0), uint(9999), uint(9999)),
                attach(f"made-up-l{number}", 0, "orders", sends=True),
            )
            assert wire.read(8) == AMQP
            wire.credit()
            for of in range(20):
                head = b"\x00\x53\x70\xc0\x0a\x03\x41\x50\x04\x70" + (number * 20 + of).to_bytes(4)
                wire.say(transfer(of, head + b"\x00\x53\x77\xa1\x01x"))
            wire.say(performative(END))
            wire.until(END)

    for number in range(100):
        pass_by(number)
    assert len(header._cache) <= header._CACHE_LIMIT
    assert len(header._redelivered) <= header._CACHE_LIMIT
    names = {f"made-up-{kind}{number}" for kind in "cstl" for number in range(90)}
    deadline_s = time.monotonic() + 180
    while True:  # the last connections may still be open
        gc.collect()
        names_in = (list(holder) for holder in gc.get_objects() if type(holder) is dict)  # broker threads keep running
        kept = {text for holder in names_in for text in holder if type(text) is str}
        if not names & kept or time.monotonic() > deadline_s:
            break
    assert not names & kept


def test_the_session_window_is_the_receivers(start_broker: StartBroker) -> None:  # A4
    """Frames beyond the session window are a violation, even if the link has credit for them."""
    broker = start_broker(limits=Limits(session_window_bytes=8 * (64 << 10)))
    with wired(broker.port) as wire:
        wire.open().attach("out", 0, "orders", sends=True)
        wire.say(*(transfer(number, b"\x00\x53\x77\xa1\x01x") for number in range(900)))
        assert b"amqp:session:window-violation" in wire.rest()
    assert_serves(broker.port)


def last_of(disposition: bytes) -> object:
    fields = read_items(disposition, descriptor(disposition, 0)[1])
    return fields[1] if fields[2] is None else fields[2]


def test_more_messages_than_credit_close_the_link(open_to_all: RunningBroker) -> None:  # A4
    with wired(open_to_all.port) as wire:
        wire.open().attach("out", 0, "orders", sends=True)
        number = 0
        for many in (900, 900, 900, 1010):  # later reads are larger, so no credit is sent meanwhile
            wire.say(*(transfer(number + of, b"\x00\x53\x77\xa1\x01x") for of in range(many)))
            number += many
            while many == 900:
                code, _, body = wire.next()
                if code == DISPOSITION and last_of(body) == number - 1:
                    break
        assert b"amqp:link:transfer-limit-exceeded" in wire.until(DETACH)[1]
    assert_serves(open_to_all.port)


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 0x7FFFFFFF), (0, 0xFFFFFFFF), (0x80000001, 0), (1, 0x80000000), (0xFFFFFFFF, 0x7FFFFFFE), (5, 4)],
)
@pytest.mark.parametrize("role", [TRUE, FALSE])
def test_a_disposition_is_as_much_work_as_there_is_unsettled(
    open_to_all: RunningBroker, first: int, last: int, role: bytes
) -> None:  # A5
    with wired(open_to_all.port) as wire:
        wire.open()
        wire.attach("out", 0, "orders", sends=True)
        wire.say(*(transfer(number, message()) for number in range(3)))
        wire.attach("in", 1, "orders", sends=False)
        wire.say(flow(1, 3))
        for _ in range(3):
            wire.until(TRANSFER)
        begun_s = time.process_time()
        outcome = performative(0x24)
        wire.say(*[performative(DISPOSITION, role, uint(first), uint(last), FALSE, outcome) for _ in range(50)])
        wire.say(performative(END))
        while wire.next()[0] not in (END, CLOSE):
            pass
        spent_s = time.process_time() - begun_s
    assert_serves(open_to_all.port)
    assert spent_s < 20, "2^31 steps of anything take longer"


@pytest.mark.parametrize("part", [b"", b"x"])
def test_a_message_in_too_many_frames_closes_its_link(start_broker: StartBroker, part: bytes) -> None:  # A6
    broker = start_broker(limits=Limits(max_transfers=100))
    with wired(broker.port) as wire:
        wire.open().attach("out", 0, "orders", sends=True)
        wire.say(transfer(0, b"\x00\x53\x77\xb0\x00\x0f\x00\x00", more=True))
        code, body = 0, b""
        for _ in range(120):
            wire.say(transfer(0, part, more=True))
            wire.say(performative(BEGIN, NULL, uint(0), uint(9), uint(9)), performative(END), channel=1)
            code = 0
            while code not in (END, DETACH):  # each frame is read separately
                code, _, body = wire.next()
            if code == DETACH:
                break
        assert code == DETACH
        assert b"amqp:resource-limit-exceeded" in body
    assert_serves(broker.port)


def test_a_message_in_many_frames_is_one(start_broker: StartBroker) -> None:  # A6
    """The frame limit applies to each message separately."""
    broker = start_broker(limits=Limits(max_transfers=100))
    with wired(broker.port) as wire:
        wire.open().attach("out", 0, "orders", sends=True)
        content = bytes(Message(body=b"x" * 80).encode())
        for number in range(5):
            for at in range(len(content)):
                wire.say(transfer(number, content[at : at + 1], more=at < len(content) - 1))
            wire.until(DISPOSITION)


def test_echoes_are_not_answered_one_by_one(open_to_all: RunningBroker) -> None:  # A7
    with wired(open_to_all.port) as wire:
        wire.open()
        wire.attach("in", 0, "orders", sends=False)
        before = wire.bytes_in
        for _ in range(100):
            wire.say(*[flow(0, 1, echo=True) for _ in range(100)])
        wire.say(performative(END))
        wire.until(END)
        assert wire.bytes_in - before < 100_000, "ten thousand flows, and less than ten bytes for each"
    assert_serves(open_to_all.port)


@pytest.mark.parametrize(("size", "offset"), [(7, 2), (8, 1), (1 << 20, 2), (0xFFFFFFFF, 2)])
def test_frames_of_a_wrong_size_close_the_connection(open_to_all: RunningBroker, size: int, offset: int) -> None:  # A8
    with wired(open_to_all.port) as wire:
        wire.open()
        wire.send(struct.pack(">IBBH", size, offset, 0, 0) + bytes(64))
        assert b"framing-error" in wire.rest()
    assert_serves(open_to_all.port)


def test_sessions_and_links_are_counted(start_broker: StartBroker) -> None:
    broker = start_broker(limits=Limits(channel_max=3, max_links=5))
    with wired(broker.port) as wire:
        wire.open()
        for handle in range(5):
            wire.attach(f"l{handle}", handle, "orders", sends=False)
        wire.say(attach("l5", 5, "orders", sends=False))
        assert b"amqp:resource-limit-exceeded" in wire.until(DETACH)[1]
        for channel in range(1, 5):
            wire.say(performative(BEGIN, NULL, uint(0), uint(9), uint(9)), channel=channel)
        answer = wire.rest()
        assert b"channel_max" in answer or b"framing-error" in answer
    assert_serves(broker.port)


def test_unsettled_messages_are_counted(start_broker: StartBroker) -> None:
    """A consumer receives at most `max_unsettled` unsettled messages, and more messages after it settles some."""
    broker = start_broker(limits=Limits(max_unsettled=10))
    with wired(broker.port) as wire:
        wire.open()
        wire.attach("out", 0, "orders", sends=True)
        wire.say(*(transfer(number, message()) for number in range(50)))
        wire.attach("in", 1, "orders", sends=False)
        wire.say(flow(1, 1000))
        for _ in range(10):
            wire.until(TRANSFER)
        wire.say(performative(BEGIN, NULL, uint(0), uint(9), uint(9)), channel=1)
        while (code := wire.next()[0]) != BEGIN:
            assert code != TRANSFER
        for number in range(0, 40, 10):
            outcome = performative(0x24)
            wire.say(performative(DISPOSITION, TRUE, uint(number), uint(number + 9), TRUE, outcome))
            for _ in range(10):
                wire.until(TRANSFER)


def test_nothing_from_outside_is_run() -> None:  # A23
    """The code of the broker uses no pickle, no eval, no dynamic import and no HTTP client."""
    forbidden = {"pickle", "marshal", "shelve", "dill", "yaml", "urllib.request", "requests", "httpx", "xmlrpc", "code"}
    floors = [path.resolve() for path in (ROOT / "typings/cairnmq").iterdir()]
    beside = ("tools", "analytics")  # not part of a broker; Spark processes exchange objects by pickle
    for path in (file for floor in floors if floor.name not in beside for file in floor.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & forbidden, path
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module not in forbidden, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "__import__", "compile"), path


def test_a_body_is_passed_on_and_never_opened(open_to_all: RunningBroker) -> None:  # A17, A23
    """Bodies are forwarded unchanged regardless of content type and content encoding."""
    with wired(open_to_all.port) as wire:
        wire.open()
        wire.attach("out", 0, "orders", sends=True)
        wire.attach("in", 1, "orders", sends=False)
        wire.say(flow(1, 10))
        said = [
            ("application/x-java-serialized-object", None),
            ("application/x-python-pickle", "gzip"),
            (None, "deflate"),
        ]
        for number, (kind, encoding) in enumerate(said):
            content = message(body="cos\nsystem\n", content_type=kind, content_encoding=encoding)
            wire.say(transfer(number, content))
            assert wire.until(TRANSFER)[1].endswith(content)
