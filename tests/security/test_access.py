"""Tests of access rules, with a broker and in isolation, and of the user-id of messages."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import Message

from cairnmq.amqp.codec.primitives import Malformed, read
from cairnmq.amqp.codec.user_id_check import NotTheSender, Walk, vouch
from cairnmq.base.errors import CairnError
from cairnmq.broker.nodes import access_control as access
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.security.wire import (
    AMQP,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    FALSE,
    FLOW,
    NULL,
    OPEN,
    TRUE,
    Wire,
    attach,
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

from .conftest import PASSWORDS, StartBroker

RULES = """
[groups]
clerks = ["ben"]

[[rules]]
who = ["*"]
may = ["connect"]

[[rules]]
who = ["*"]
may_not = ["receive"]
on = ["orders.secret"]

[[rules]]
who = ["anna"]
may = ["send", "create"]
on = ["orders", "orders.*"]

[[rules]]
who = ["group:clerks"]
may = ["receive", "browse"]
on = ["orders", "orders.*"]

[[rules]]
who = ["group:clerks"]
may = ["create", "send"]
on = ["dynamic-*"]
"""


@pytest.fixture
def ruled(start_broker: StartBroker, users_file: str) -> RunningBroker:
    return start_broker(acl=RULES, users_file=users_file, anonymous=False, auto_create=("orders*",))


def logged_in(wire: Wire, name: str) -> Wire:
    assert wire.scram(name, PASSWORDS[name]) == 0
    return wire.open()


def copying(address: str) -> bytes:
    fields = [string(address), *[NULL] * 5, symbol("copy")]
    return performative(0x28, *fields)


def attached(wire: Wire, handle: int, address: str, *, sends: bool, browse: bool = False) -> str:
    """Attach a link; return the error condition, or an empty string if the link is accepted."""
    if browse:
        wire.say(
            performative(ATTACH, string(f"l{handle}"), uint(handle), TRUE, NULL, NULL, copying(address), target("me"))
        )
    else:
        wire.say(attach(f"l{handle}", handle, address, sends=sends))
    wire.until(ATTACH)
    if not sends:
        wire.say(performative(FLOW, uint(0), uint(99), uint(0), uint(99)))
        wire.say(performative(0x11, NULL, uint(0), uint(9), uint(9)), channel=handle + 1)
    else:
        wire.say(performative(0x11, NULL, uint(0), uint(9), uint(9)), channel=handle + 1)
    while True:  # answers are ordered: the begin is answered after the attach
        code, _, body = wire.next()
        if code == DETACH:
            start = body.index(b"amqp:")
            return body[start : body.index(b"\xa1", start)].decode()
        if code == BEGIN:
            return ""


@pytest.mark.parametrize(
    ("name", "address", "sends", "browse", "refused"),
    [
        ("anna", "orders", True, False, ""),
        ("anna", "orders.new", True, False, ""),
        ("anna", "orders", False, False, "amqp:unauthorized-access"),
        ("anna", "orders", False, True, "amqp:unauthorized-access"),
        ("anna", "others", True, False, "amqp:unauthorized-access"),
        ("ben", "orders", False, False, ""),
        ("ben", "orders", False, True, ""),
        ("ben", "orders", True, False, "amqp:unauthorized-access"),
        ("ben", "orders.secret", False, False, "amqp:unauthorized-access"),
        ("ben", "orders.secret", False, True, ""),
        ("ben", "orders.none", False, False, "amqp:unauthorized-access"),  # missing, and Ben may not create queues
        ("ben", "nothing", False, False, "amqp:unauthorized-access"),  # a missing queue is not disclosed
        ("ben", "orders*", False, False, "amqp:unauthorized-access"),  # A14: a pattern used as a name is only a name
        ("ben", "orders,others", False, False, "amqp:unauthorized-access"),
        ("anna", "*", True, False, "amqp:unauthorized-access"),
        ("anna", "ORDERS", True, False, "amqp:unauthorized-access"),
    ],
)
def test_each_operation_is_asked_about(
    ruled: RunningBroker, name: str, address: str, sends: bool, browse: bool, refused: str
) -> None:  # A13, A14
    with wired(ruled.port) as wire:
        logged_in(wire, "anna")
        for handle, queue in enumerate(("orders", "orders.secret")):
            assert attached(wire, handle, queue, sends=True) == ""
    with wired(ruled.port) as wire:
        logged_in(wire, name)
        assert attached(wire, 0, address, sends=sends, browse=browse) == refused


def test_the_relay_asks_for_each_message(ruled: RunningBroker) -> None:  # A13
    with wired(ruled.port) as wire:
        logged_in(wire, "anna")
        end = performative(0x29, NULL)
        wire.say(performative(ATTACH, string("r"), uint(0), FALSE, NULL, NULL, source("me"), end, NULL, NULL, uint(0)))
        wire.credit()
        names = ["orders", "others", "orders.x", "others", "orders"]
        wire.say(*(transfer(number, message(address=name)) for number, name in enumerate(names)))
        refused: set[int] = set()
        answered: set[int] = set()
        long = Message(body=b"x" * 200_000, address="others").encode()
        parts = [long[at : at + 50_000] for at in range(0, len(long), 50_000)]
        for number, part in enumerate(parts):
            wire.say(transfer(5, part, more=number < len(parts) - 1))
        while answered != set(range(6)):
            fields, body = disposition(wire)
            numbers = set(range(fields[0], fields[1] + 1))
            answered |= numbers
            if b"amqp:unauthorized-access" in body:
                refused |= numbers
        assert refused == {1, 3, 5}


def disposition(wire: Wire) -> tuple[list[int], bytes]:
    """Return the first and last delivery of the next disposition and its body."""
    while True:
        code, _, body = wire.next()
        if code == DISPOSITION:
            break
    first, at = read(body, 7 if body[3] == 0xC0 else 13)
    last, _ = read(body, at)
    assert isinstance(first, int)
    return [first, last if isinstance(last, int) else first], body


def test_who_may_not_connect_hears_it(start_broker: StartBroker, users_file: str) -> None:
    rules = '[[rules]]\nwho = ["anna"]\nmay = ["*"]\n'
    broker = start_broker(acl=rules, users_file=users_file, anonymous=True)
    with wired(broker.port) as wire:
        logged_in(wire, "anna")
    for name in ("ben", ""):
        with wired(broker.port) as wire:
            if name:
                assert wire.scram(name, PASSWORDS[name]) == 0
            wire.send(AMQP + frame(performative(OPEN, string("raw"))) + frame(performative(BEGIN, NULL, uint(0))))
            assert wire.read(8) == AMQP
            while True:
                code, _, body = wire.next()
                if code == CLOSE:
                    break
            assert b"amqp:unauthorized-access" in body
            assert b"may not connect" in body


def dynamic(wire: Wire, handle: int, *, sends: bool) -> str:
    """Attach to a dynamic node and return the name of the node."""
    made = performative(0x29 if sends else 0x28, NULL, NULL, NULL, NULL, TRUE)
    ends = (source("me"), made) if sends else (made, target("me"))
    count = (NULL, NULL, uint(0)) if sends else ()
    wire.say(
        performative(ATTACH, string(f"d{handle}"), uint(handle), FALSE if sends else TRUE, NULL, NULL, *ends, *count)
    )
    body = wire.until(ATTACH)[1]
    at = body.index(b"dynamic-")
    return body[at : at + 44].decode()


def test_a_node_made_for_a_connection_is_read_by_it_alone(open_to_all: RunningBroker) -> None:  # A14
    with wired(open_to_all.port) as mine, wired(open_to_all.port) as other:
        name = dynamic(mine.open(), 0, sends=False)
        other.open()
        assert attached(other, 0, name, sends=False) == "amqp:unauthorized-access"
        assert attached(other, 1, name, sends=False, browse=True) == "amqp:unauthorized-access"
        assert attached(other, 2, name, sends=True) == "", "others answer there"
        assert attached(mine, 1, name, sends=False, browse=True) == ""


def test_making_a_node_is_asked_about(ruled: RunningBroker) -> None:
    with wired(ruled.port) as wire:
        logged_in(wire, "ben")
        assert dynamic(wire, 0, sends=False)
    with wired(ruled.port) as wire:
        logged_in(wire, "anna")
        wire.say(
            performative(
                ATTACH, string("d"), uint(0), TRUE, NULL, NULL, performative(0x28, NULL, NULL, NULL, NULL, TRUE)
            )
        )
        assert b"amqp:unauthorized-access" in wire.until(DETACH)[1]


# ---- user-id --------------------------------------------------------------------------------------------------------

BODY = b"\x00\x53\x77\xa1\x01x"


def properties(user_id: bytes, code: bytes = b"\x53\x73") -> bytes:
    fields = b"\x40\xa0" + bytes((len(user_id),)) + user_id
    return b"\x00" + code + b"\xc0" + bytes((len(fields) + 1, 2)) + fields


MINE, HERS = properties(b"anna"), properties(b"ben")
VERDICTS: dict[str, tuple[bytes, type[Exception] | None]] = {
    "none": (BODY, None),
    "mine": (MINE + BODY, None),
    "hers": (HERS + BODY, NotTheSender),
    "a prefix": (properties(b"ann") + BODY, NotTheSender),
    "with a wide descriptor": (properties(b"ben", b"\x80" + bytes(7) + b"\x73") + BODY, NotTheSender),
    "with a descriptor by name": (properties(b"ben", b"\xa3\x14amqp:properties:list") + BODY, NotTheSender),
    "behind the body": (BODY + HERS, Malformed),
    "twice": (MINE + HERS + BODY, Malformed),
    "behind application properties": (b"\x00\x53\x74\xc1\x01\x00" + HERS + BODY, Malformed),
    "behind the footer": (MINE + BODY + b"\x00\x53\x78\xc1\x01\x00" + HERS, Malformed),
    "in the body": (b"\x00\x53\x75\xa0" + bytes((len(HERS),)) + HERS, None),
    "behind annotations": (b"\x00\x53\x72\xc1\x01\x00" + HERS + BODY, NotTheSender),
    "a described body": (MINE + b"\x00\x53\x77\x00\xa3\x01a\xa1\x01x", None),
    "two bodies of data": (MINE + b"\x00\x53\x75\xa0\x01x\x00\x53\x75\xa0\x01y", None),
}


def walked(content: bytes, cuts: set[int]) -> type[Exception] | None:
    """Check a message that arrives in pieces; return the type of the error, or None."""
    walk = Walk("anna")
    ends = [*sorted(cut for cut in cuts if cut < len(content)), len(content)]
    try:
        for start, end in zip([0, *ends], ends, strict=False):
            walk.feed(content[start:end], last=end == len(content))
    except (NotTheSender, Malformed) as error:
        return NotTheSender if isinstance(error, NotTheSender) else Malformed
    return None


@pytest.mark.parametrize(("content", "verdict"), VERDICTS.values(), ids=VERDICTS.keys())
def test_a_user_id_is_found_wherever_it_stands(content: bytes, verdict: type[Exception] | None) -> None:  # A15
    if verdict is None:
        vouch(content, "anna")
    else:
        with pytest.raises(verdict):
            vouch(content, "anna")
    for cut in range(1, len(content)):
        assert walked(content, {cut}) is verdict
    assert walked(content, set(range(1, len(content)))) is verdict


@given(
    content=st.sampled_from([content for content, _ in VERDICTS.values()]) | st.binary(max_size=60),
    cuts=st.sets(st.integers(1, 60)),
    change=st.binary(max_size=2),
    at=st.integers(0, 60),
)
def test_pieces_come_to_the_same(content: bytes, cuts: set[int], change: bytes, at: int) -> None:  # A15
    """The verdict on a message does not depend on fragmentation, and `vouch` refuses each message that `Walk` does."""
    content = content[:at] + change + content[at + len(change) :]
    verdict = walked(content, cuts)
    assert verdict is walked(content, set())
    if verdict is NotTheSender:
        with pytest.raises((NotTheSender, Malformed)):
            vouch(content, "anna")


@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("user_id", [b"anna", b"ben", b""])
def test_a_message_from_somebody_else_is_refused(guarded: RunningBroker, size: int, user_id: bytes) -> None:  # A15
    with wired(guarded.port) as wire:
        logged_in(wire, "anna")
        wire.attach("out", 0, "orders", sends=True)
        content = Message(body=b"x" * size, user_id=user_id).encode() if user_id else Message(body=b"x" * size).encode()
        parts = [content[at : at + 50_000] for at in range(0, len(content), 50_000)]
        for number, part in enumerate(parts):
            wire.say(transfer(0, part, more=number < len(parts) - 1))
        _, body = disposition(wire)
        assert (b"amqp:unauthorized-access" in body) == (user_id == b"ben")


# ---- ACL file -------------------------------------------------------------------------------------------------------


def rules_of(text: str) -> access.Access:
    return access.parse(text.encode(), "acl.toml")


def test_the_first_rule_that_fits_decides() -> None:
    rules = rules_of(RULES)
    assert rules.denial_reason("ben", "receive", "orders.secret") == "'ben' may not receive 'orders.secret'"
    assert rules.denial_reason("ben", "receive", "orders.x") == ""
    assert rules.denial_reason("", "connect") == ""
    assert rules.denial_reason("", "send", "orders") == "'anonymous' may not send 'orders'"
    assert rules_of("").denial_reason("anna", "connect") == "'anna' may not connect"
    everybody = rules_of('[[rules]]\nwho = ["anonymous"]\nmay = ["*"]')
    assert [bool(everybody.denial_reason(user, "manage", "x")) for user in ("", "anna")] == [False, True]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rules = 1", "rules are a list"),
        ("[[rules]", "invalid TOML"),
        ("x = " + "[" * 5000, "invalid TOML"),
        ("[rule]\n", "unknown key 'rule' (allowed: groups, rules, quotas)"),
        ("[[rules]]\nwho = ['a']", "rule 1: a rule has `may` or `may_not`, and not both"),
        ("[[rules]]\nwho = ['a']\nmay = ['send']\nmay_not = ['send']", "and not both"),
        ("[[rules]]\nwho = ['group:x']\nmay = ['send']", "there is no group 'x'"),
        ("[[rules]]\nwho = ['a']\nmay = ['sned']", "unknown operation 'sned' (allowed: connect, send"),
        ("[[rules]]\nwho = 'a'\nmay = ['send']", "a list of strings is expected"),
        ("[[rules]]\nwho = ['a']\nmay = ['send']\nto = ['x']", "unknown key 'to'"),
        ("[groups]\na = 1", "group 'a': a list of strings"),
    ],
)
def test_a_broken_file_is_told_by_rule(text: str, complaint: str) -> None:
    with pytest.raises(CairnError) as caught:
        rules_of(text)
    assert complaint in str(caught.value)
    assert caught.value.place.startswith("acl.toml")
    assert caught.value.remedy


def test_matching_a_name_takes_linear_time() -> None:  # A16
    rules = rules_of('[[rules]]\nwho = ["*"]\nmay = ["send"]\non = ["' + "*a" * 30 + '*b"]')

    def spent_s(size: int) -> float:
        begun_s = time.process_time()
        rules.denial_reason("x", "send", "a" * size)
        return time.process_time() - begun_s

    spent_s(1000)
    assert spent_s(100_000) < 100 * max(spent_s(10_000), 0.001)


# ---- patterns as names ----------------------------------------------------------------------------------------------

PATTERNS = st.text("ab.*?[]!", min_size=1, max_size=6)
NAMES = st.text("ab.*?[]!", max_size=6)
SHORT_NAMES = ["".join(chars) for size in range(4) for chars in product("ab.", repeat=size)]


@given(
    rules=st.lists(st.tuples(st.booleans(), st.lists(PATTERNS, min_size=1, max_size=2)), min_size=1, max_size=4),
    pattern=PATTERNS,
    names=st.lists(NAMES, max_size=40),
)
@example(rules=[(True, ["*infix*"])], pattern="*[infix]*", names=["victim"])
@example(rules=[(False, ["a.b"]), (True, ["a.*"])], pattern="a.*", names=["a.b"])
@example(rules=[(False, ["?.b"]), (True, ["a.*"])], pattern="a.*", names=["a.b"])
def test_pattern_is_allowed_only_if_all_its_names_are(
    rules: list[tuple[bool, list[str]]], pattern: str, names: list[str]
) -> None:  # W4
    text = "".join(
        f"[[rules]]\nwho = ['*']\n{'may' if allowed else 'may_not'} = ['configure']\non = {patterns!r}\n"
        for allowed, patterns in rules
    )
    parsed = rules_of(text)
    if not parsed.denial_reason("evil", "configure", pattern, pattern=True):
        for name in [*names, *SHORT_NAMES]:
            if fnmatchcase(name, pattern):
                assert not parsed.denial_reason("evil", "configure", name), name


@pytest.mark.parametrize(
    ("on", "pattern", "allowed"),
    [
        ("evil.*", "evil.*", True),
        ("evil.*", "evil.a*", True),
        ("evil.*", "evil.*.b", True),
        ("evil.*", "evil*", False),
        ("evil.*", "*", False),
        ("evil.*", "evil.b", True),
        ("evil.?", "evil.?", True),
        ("evil.?", "evil.[ab]", False),
        ("*", "*", True),
        ("*", "victim.*", True),
    ],
)
def test_pattern_under_a_rule(on: str, pattern: str, allowed: bool) -> None:  # W4
    parsed = rules_of(f"[[rules]]\nwho = ['*']\nmay = ['configure']\non = ['{on}']\n")
    assert (not parsed.denial_reason("evil", "configure", pattern, pattern=True)) == allowed
