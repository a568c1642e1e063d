"""Tests that the message-format of a transfer (2.7.5, 2.8.11) reaches the receivers of the message on every way."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cairnmq.amqp.codec import encode, header
from cairnmq.amqp.codec.types import Described, Symbol, Ubyte, Uint, Ulong
from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import StartBroker
from tests.harness.process import CAIRNMQ
from tests.harness.process import broker as process
from tests.harness.router import raw
from tests.harness.router.raw import Frame, Raw, attach, begin, frame, opening

BATCH = 0x80013700
"""The format of batches of Azure's event hubs."""
FORMATS = (1, 0xFF, 0x100, BATCH, 0xFFFFFFFF)
BODY = encode.described(0x75, encode.binary(b"body"))
DURABLE = b"\x00Sp\xc0\x02\x01\x41"
COPY = Described(Ulong(raw.SOURCE), ["held", *[None] * 5, Symbol("copy")])


def sent(number: int, message_format: int, payload: bytes, *, step: int = 1 << 20, settled: bool = False) -> bytes:
    """Return the transfers of a message in parts of *step* bytes."""
    parts = [payload[at : at + step] for at in range(0, len(payload), step)]
    return b"".join(
        frame(
            raw.TRANSFER, Uint(0), Uint(number), number.to_bytes(4), Uint(message_format) if not place else None,
            settled, place + 1 < len(parts), payload=part,
        )
        for place, part in enumerate(parts)
    )  # fmt: skip


def sender(port: int, address: str) -> Raw:
    one = Raw(port, opening(), begin(), attach("in", 0, address))
    while len(one.until("flow").fields) < 7:
        pass
    return one


def receiver(port: int, address: str, *, credit: int = 100, source: Described | None = None) -> Raw:
    asked = attach("out", 0, address, receives=True)
    if source is not None:
        target = Described(Ulong(raw.TARGET), [None])
        asked = frame(raw.ATTACH, "out", Uint(0), True, Ubyte(2), Ubyte(0), source, target)
    one = Raw(port, opening(max_frame=4096), begin(), asked)
    one.until("attach")
    one.say(frame(raw.FLOW, Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(0), Uint(0), Uint(credit)))
    return one


def taken(one: Raw) -> tuple[list[int], bytes, int]:
    """Return the formats of a delivery's transfers, its content, and its id."""
    formats: list[int] = []
    content, number, more = b"", 0, True
    while more:
        found: Frame = one.until("transfer")
        fields = [*found.fields, *[None] * 6]
        number = number if fields[1] is None else int(fields[1])
        formats.append(0 if fields[3] is None else int(fields[3]))
        content += found.payload
        more = bool(fields[5])
    return formats, content, number


def settled(one: Raw, number: int, code: int) -> None:
    one.say(frame(raw.DISPOSITION, True, Uint(number), Uint(number), True, Described(Ulong(code), [])))


def accepted(one: Raw, count: int) -> None:
    last = -1
    while last < count - 1:
        fields = one.until("disposition").fields
        assert fields[4].descriptor == 0x24
        last = int(fields[2] if len(fields) > 2 and fields[2] is not None else fields[1])


# P1
@pytest.mark.parametrize("head", [b"", DURABLE], ids=["no-header", "durable"])
@pytest.mark.parametrize(("size_bytes", "step"), [(10, 1 << 20), (10, 1), (10, 3), (300_000, 5000)])
def test_format_and_content_are_kept_in_all_transfers(
    broker: RunningBroker, head: bytes, size_bytes: int, step: int
) -> None:
    """Formats alternate with 0, to which they must not spread; parts may cut the header."""
    formats = [one for each in FORMATS for one in (each, 0)]
    contents = [head + encode.described(0x75, encode.binary(bytes([n]) * size_bytes)) for n in range(len(formats))]
    with sender(broker.port, "held") as one, receiver(broker.port, "held") as other:
        for number, (message_format, content) in enumerate(zip(formats, contents, strict=True)):
            one.say(sent(number, message_format, content, step=step))
        accepted(one, len(formats))
        found = [taken(other) for _ in formats]
    assert [set(formats) for formats, _, _ in found] == [{one} for one in formats]
    bodies = [content[header.parse(content).size_bytes :] for _, content, _ in found]
    assert bodies == [content[len(head) :] for content in contents]
    assert all(header.parse(content).durable == bool(head) for _, content, _ in found)
    assert all(content[:3] != b"\x00Sp" or content[5] == 5 or message_format == 0 or not head
               for (_, content, _), message_format in zip(found, formats, strict=True))  # fmt: skip


# P1
def test_format_is_kept_by_browsers_redeliveries_and_dead_letters(broker: RunningBroker) -> None:
    manage(broker.port, "queues", "create", "dead")
    manage(broker.port, "queues", "create", "held", "-a", "dead-letter-address=dead")
    with sender(broker.port, "held") as one:
        one.say(sent(0, BATCH, DURABLE + BODY, settled=True))
        with receiver(broker.port, "held", source=COPY) as browser:
            assert taken(browser)[0] == [BATCH]
    with receiver(broker.port, "held", credit=1) as first:
        assert taken(first)[0] == [BATCH]
    with receiver(broker.port, "held") as again:
        formats, content, number = taken(again)
        assert formats == [BATCH]
        assert header.parse(content).delivery_count == 1
        assert header.parse(content).message_format == 0, "only transfers have it outside of the broker"
        settled(again, number, 0x25)
        with receiver(broker.port, "dead") as dead:
            assert taken(dead)[0] == [BATCH]


# P1
@pytest.mark.parametrize("options", [{"anycast": ("held",)}, {"multicast": ("held",)}], ids=["anycast", "multicast"])
@pytest.mark.parametrize("size_bytes", [10, 300_000])
def test_format_is_kept_on_a_pass_through_address(start_broker: StartBroker, options: dict, size_bytes: int) -> None:  # type: ignore[type-arg]
    broker = start_broker(**options)
    body = encode.described(0x75, encode.binary(bytes(size_bytes)))
    with receiver(broker.port, "held") as other, sender(broker.port, "held") as one:
        one.say(sent(0, BATCH, DURABLE + body, step=5000))
        formats, content, _ = taken(other)
    assert set(formats) == {BATCH}
    assert content[header.parse(content).size_bytes :] == body


# P1
def test_format_outlasts_a_restart_is_in_the_dump_and_is_sent_again(tmp_path: Path) -> None:
    with process(tmp_path / "store") as running, sender(running.port, "held") as one:
        one.say(sent(0, BATCH, DURABLE + BODY), sent(1, 0, DURABLE + BODY))
        accepted(one, 2)
    said = cairnmq("dump", str(tmp_path / "store"), "--payload", "all")
    assert said.count(f"message-format 0x{BATCH:08x}") == 1
    with process(tmp_path / "store") as running, receiver(running.port, "held") as other:
        assert [taken(other)[0] for _ in range(2)] == [[BATCH], [0]]
    with process(tmp_path / "other") as running:
        cairnmq("replay", str(tmp_path / "store"), "--to", f"amqp://127.0.0.1:{running.port}", "--speed", "max")
        with receiver(running.port, "held") as other:
            assert [taken(other)[0] for _ in range(2)] == [[BATCH], [0]]


def cairnmq(*arguments: str) -> str:
    done = subprocess.run([CAIRNMQ, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def manage(port: int, *arguments: str) -> None:
    cairnmq("ctl", "--url", f"127.0.0.1:{port}", *arguments)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker()
