"""Tests of redaction: hidden values are not in the dump, other values are unchanged, and messages stay valid."""

from __future__ import annotations

import io
import json
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, symbol

from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.format.record import Flag, RecordType
from cairnmq.recovery.recover import open_store
from cairnmq.tools.load.loader import load
from cairnmq.tools.load.redaction import Redaction, Rules
from tests.harness.process import CAIRNMQ, DEADLINE_S
from tests.harness.store.stores import NOW_US, queue

SECRETS = ("the body", "the subject", "the id", "red", "secret note", "nested")


def message(**more: Any) -> bytes:
    given = {
        "id": "the id", "subject": "the subject", "durable": True, "annotations": {symbol("x-note"): "secret note"},
        "properties": {"colour": "red", "number": 123456, "uuid": UUID(int=5), "nothing": None},
        "body": {"key": ["the body", 1.5, True, {"deep": "nested"}]},
    }  # fmt: skip
    return bytes(Message(**{**given, **more}).encode())


def head(kind: RecordType, flags: int = 0, message_id: int = 64) -> tuple[Any, ...]:
    return (int(kind), flags, 0, 0, 0, 0, 0, message_id, 1, 0, 0, 0)


def hidden(content: bytes, *rules: str, key: str = "", cuts: tuple[int, ...] = ()) -> bytes:
    """Redact *content* in pieces, cut at *cuts*, and return it as a dump shows it."""
    redaction = Redaction(Rules(rules, key.encode()))
    ends = [*sorted(cuts), len(content)]
    shown, begin = b"", 0
    for number, end in enumerate(ends):
        kind = RecordType.CHUNK if number else RecordType.START
        shown += redaction(head(kind, Flag.MORE if end < len(content) else 0), content[begin:end])
        begin = end
    assert len(shown) == len(content)
    return shown


def decoded(content: bytes) -> Any:
    found = Message()
    found.decode(content)
    return found


@pytest.mark.parametrize("key", ["", "a key"])
def test_each_rule_hides_what_it_says(key: str) -> None:
    content = message()
    body = decoded(hidden(content, "body", key=key))
    assert (body.id, body.subject, body.properties["colour"]) == ("the id", "the subject", "red")
    assert "the body" not in str(body.body)
    assert len(body.body) == 1
    properties = decoded(hidden(content, "properties", key=key))
    assert (properties.body, properties.properties["colour"]) == (decoded(content).body, "red")
    assert (properties.id, len(properties.id)) != ("the id", 0)
    assert len(properties.id) == len("the id")
    own = decoded(hidden(content, "application-properties", key=key)).properties
    assert set(own) == {"colour", "number", "uuid", "nothing"}
    assert (own["colour"], own["number"], own["uuid"]) != ("red", 123456, UUID(int=5))
    one = decoded(hidden(content, "application-properties:colour", key=key)).properties
    assert (one["number"], one["uuid"], one["colour"] == "red") == (123456, UUID(int=5), False)
    note = decoded(hidden(content, "annotations", key=key)).annotations
    assert note[symbol("x-note")] != "secret note"
    for secret in SECRETS:
        assert secret.encode() not in hidden(content, "all", key=key)
        assert secret.encode() not in hidden(content, "payloads", key=key)
    assert decoded(hidden(content, "all", key=key)).durable


def test_joins_still_work_and_only_with_the_key() -> None:
    first, second = message(id="order-1", correlation_id="order-2"), message(id="order-2", correlation_id="order-3")
    shown = [decoded(hidden(one, "properties", key="k")) for one in (first, second)]
    assert shown[0].correlation_id == shown[1].id != shown[0].id
    assert decoded(hidden(first, "properties", key="other")).id != shown[0].id
    assert decoded(hidden(first, "properties")).id == "xxxxxxx"


@given(st.binary(max_size=300), st.sets(st.integers(1, 299)), st.sampled_from(["", "k"]))
def test_junk_and_pieces_keep_their_length_and_are_hidden(junk: bytes, cuts: set[int], key: str) -> None:
    hidden(junk, "all", key=key, cuts=tuple(one for one in cuts if one < len(junk)))
    content = message(body=b"secret" * 50)
    inside = tuple(one for one in cuts if one < len(content))
    shown = hidden(content, "all", key=key, cuts=inside)
    assert b"secretsecret" not in shown
    assert decoded(shown).properties.keys() == decoded(content).properties.keys()


@pytest.mark.parametrize(
    "junk",
    [b"\x00\x53\x77\xf0\0\0\0\x20\xff\xff\xff\xff\x45", b"\x00" * 5000, b"\x00\x53\x77" + b"\xd0" * 99],
)
def test_what_is_made_to_hurt_does_not(junk: bytes) -> None:
    hidden(junk + b"\x45" * 10, "all")  # the redaction ends, and keeps the length


def test_a_piece_whose_beginning_is_not_there_is_hidden_as_a_whole() -> None:
    redaction = Redaction(Rules(["application-properties:colour"], b""))
    assert redaction(head(RecordType.CHUNK), b"anything") == b"xxxxxxxx"
    assert redaction.opaque == 1
    assert redaction(head(RecordType.DTX_START), b"an xid") == b"an xid"
    with pytest.raises(CairnError, match="unknown rule"):
        Rules(["bodies"], b"")


def test_a_redacted_dump_makes_a_store(tmp_path: Path) -> None:
    store, _ = open_store(str(tmp_path / "1"), ManualClock())
    store.run_inline(store.became_durable)
    on = queue(store, "orders")
    store.put(on, message(), NOW_US)
    store.put(on, message(body=b"the body" * 20_000), NOW_US)
    store.close()
    for options in ([], ["--redact-key", "k"]):
        command = [CAIRNMQ, "dump", str(tmp_path / "1"), "--complete", "--redact", "all", *options]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S)
        assert (done.returncode, done.stderr) == (0, b"")
        payloads = [json.loads(line).get("payload_base64", "") for line in done.stdout.splitlines()]
        assert all(secret.encode() not in b64decode(one) for one in payloads for secret in SECRETS)
        target = str(tmp_path / f"2{len(options)}")
        made = load(io.BytesIO(done.stdout), target, ManualClock(), lambda what, done, total: None)
        assert made.messages == 2
        store, _ = open_store(target, ManualClock())
        for message_id in store.messages()[on]:
            content = b"".join(store.load_piece(message_id, n) for n in range(store.piece_count(message_id)))
            assert decoded(content).properties.keys() == {"colour", "number", "uuid", "nothing"}
        store.close()
    people = subprocess.run(
        [CAIRNMQ, "dump", str(tmp_path / "1"), "--payload", "all", "--redact", "all"], capture_output=True,
        text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert not [secret for secret in SECRETS if secret in people.stdout]
