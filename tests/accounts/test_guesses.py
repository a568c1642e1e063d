"""Tests of recent login failures, and of the threads that process logins (W11)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.sasl.server import Check, Login
from cairnmq.base.accounts.audit import CREDENTIALS, LoginFailure
from cairnmq.base.accounts.audit import Login as LoggedIn
from cairnmq.base.accounts.clerks import Clerk
from cairnmq.base.accounts.guesses import (
    FORGET_S,
    FREE_FAILURES,
    MOST_DELAY_ELSEWHERE_S,
    MOST_DELAY_S,
    MOST_ENTRIES,
    MOST_FIRST_DELAY_S,
    MOST_TRUSTED_DELAY_S,
    Guesses,
)
from cairnmq.base.accounts.networks import network_of
from cairnmq.base.clock import Clock
from cairnmq.router.admission import login_gate
from cairnmq.router.admission.login_gate import BUSY, LoginGate

WAIT_S = 180.0


class _Time(Clock):
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_us(self) -> int:
        return int(self.now_s * 1e6)


PLACES = st.tuples(st.sampled_from(["here", "there"]), st.sampled_from(["anna", "ben"]))


@given(st.lists(PLACES, max_size=40), PLACES)
def test_delay_grows_with_failures_of_address_or_name(failures: list[tuple[str, str]], asked: tuple[str, str]) -> None:
    """The delay starts after some failures, never decreases with another one, has a maximum, and ends after a while."""
    clock = _Time()
    guesses = Guesses(clock)
    before_s = 0.0
    for failure in failures:
        guesses.failed(*failure)
        delay_s = guesses.delay_s(*asked)
        assert before_s <= delay_s <= MOST_DELAY_S
        before_s = delay_s
    most = max(sum(one[at] == asked[at] for one in failures) for at in (0, 1))
    assert (before_s > 0) == (most >= FREE_FAILURES)
    clock.now_s += FORGET_S
    assert guesses.delay_s(*asked) == 0


def test_delay_of_a_name_known_at_its_address_is_short() -> None:
    """Failures of other names at its address do not delay a name, and its failures elsewhere delay it little."""
    guesses = Guesses(_Time())
    guesses.succeeded("here", "anna")
    for _ in range(100):
        guesses.failed("here", "ben")
    assert guesses.delay_s("here", "anna") == 0
    assert guesses.delay_s("here", "ben") == MOST_DELAY_S
    assert guesses.delay_s("here", "carl") == MOST_FIRST_DELAY_S
    for _ in range(100):
        guesses.failed("there", "anna")
    assert guesses.delay_s("here", "anna") == MOST_TRUSTED_DELAY_S
    assert guesses.delay_s("elsewhere", "anna") == MOST_DELAY_ELSEWHERE_S  # A4: its user, from a new address


def test_guesses_keep_a_bounded_table() -> None:
    guesses = Guesses(_Time())
    for number in range(MOST_ENTRIES):
        guesses.failed(f"address-{number}", f"name-{number}")
        guesses.succeeded(f"address-{number}", f"name-{number}")
    assert len(guesses._failures) == MOST_ENTRIES
    assert len(guesses._trusted) == MOST_ENTRIES


@pytest.fixture
def clerk() -> Iterator[Clerk]:
    made = Clerk("clerk of a test", 8, 8)
    yield made
    made.stop()


def test_clerk_begins_its_thread_with_the_first_job() -> None:
    def threads() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name == "clerk that starts late"]

    unused = Clerk("clerk that starts late", 8, 8)
    assert threads() == []
    unused.stop()
    assert not unused.submit("anna", lambda: None)
    used, over = Clerk("clerk that starts late", 8, 8), threading.Event()
    assert used.submit("anna", over.set)
    assert over.wait(WAIT_S)
    assert len(threads()) == 1
    used.stop()
    assert threads() == []


def test_clerk_without_a_thread_takes_no_job(clerk: Clerk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login fails at once if the system can't start a thread, and no other thread processes it later."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[str] = []
    over = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            clerk.submit("anna", lambda: done.append("failed"))
    assert clerk.submit("anna", over.set)
    assert over.wait(WAIT_S)
    assert done == []


def test_owners_take_turns_and_those_with_fewest_jobs_get_places(clerk: Clerk) -> None:  # A4
    """One owner may fill all places that are not reserved, and yields them to others, whose turn comes next."""
    order: list[str] = []
    going_on, over = threading.Event(), threading.Event()
    begun = threading.Event()

    def first() -> None:
        begun.set()
        going_on.wait(WAIT_S)

    assert clerk.submit("first", first)
    assert begun.wait(WAIT_S)
    for owner in ("many",) * 5:
        assert clerk.submit(owner, lambda owner=owner: order.append(owner))  # type: ignore[misc]
    assert not clerk.submit("many", lambda: order.append("one too many"))
    assert clerk.submit("one", lambda: order.append("one"))
    assert clerk.submit("last", over.set)
    going_on.set()
    assert over.wait(WAIT_S)
    assert order[:2] == ["many", "one"]


def test_a_delayed_job_lets_others_pass(clerk: Clerk) -> None:
    order: list[str] = []
    over = threading.Event()

    def delayed() -> None:
        order.append("delayed")
        over.set()

    assert clerk.submit("a", delayed, 0.2)
    assert clerk.submit("a", lambda: order.append("at once"))
    assert over.wait(WAIT_S)
    assert order == ["at once", "delayed"]


def test_delayed_jobs_leave_the_places_of_others(clerk: Clerk) -> None:
    """The maximum number of delayed jobs leaves room for a job of another owner."""
    for number in range(100):
        clerk.submit(f"attacker {number}", lambda: None, 600.0)
    over = threading.Event()
    assert clerk.submit("anna", over.set)
    assert over.wait(WAIT_S)


def test_the_largest_owner_of_delayed_jobs_yields(clerk: Clerk) -> None:
    """The newest delayed job of an owner with most jobs is refused; if every owner has one job, the new job is."""
    refused: list[str] = []

    def submit(owner: str, name: str, *, trusted: bool = False) -> bool:
        return clerk.submit(
            owner, lambda: None, 600.0, is_trusted=trusted, refused=lambda: refused.append(name)
        )  # fmt: skip

    for owner in "abc":  # the jobs occupy all six places that are not reserved
        assert submit(owner, f"{owner} 1")
        assert submit(owner, f"{owner} 2")
    assert submit("new", "new 1")
    assert refused == ["c 2"]
    assert submit("anna", "anna", trusted=True)
    assert submit("ben", "ben", trusted=True)
    assert refused == ["c 2"]
    assert submit("carl", "carl", trusted=True)
    assert refused == ["c 2", "b 2"]
    for owner in ("d", "e"):
        submit(owner, owner)
    assert not submit("f", "f")  # each owner has one job now
    assert not {"anna", "ben", "carl"} & set(refused)


def test_a_job_that_nobody_wants_gives_its_place_away(clerk: Clerk) -> None:
    wanted, refused = [True], list[str]()
    for owner in "aaabbc":
        assert clerk.submit(
            owner, lambda: None, 600.0, is_wanted=lambda: wanted[0], refused=lambda: refused.append("refused")
        )
    assert not clerk.submit("a", lambda: None, 600.0)
    wanted[0] = False
    for owner in "aaabbc":
        assert clerk.submit(owner, lambda: None, 600.0)
    assert not refused


def test_gate_keeps_room_under_a_flood_of_delayed_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a flood, a user who has logged in before is checked at once, and a login from another network may wait."""
    monkeypatch.setattr(login_gate, "MOST_DELAYED", 64)
    gate, answers = LoginGate(Login(), 1000), list[tuple[str, object]]()
    done = threading.Event()

    def post(then: Callable[[object], None], found: object) -> None:
        then(found)

    def attempt(peer: str, user: str) -> bool:
        def then(found: object) -> None:
            answers.append((peer, found))
            if user == "anna":
                done.set()

        return gate.check(Check(lambda: "found", is_hash=True, user=user), peer, lambda: True, then)

    gate.start(post)
    try:
        gate.logged_in(LoggedIn("10.0.0.1:1", "anna", "PLAIN", "container"))
        for number in range(80):
            gate.login_failed(LoginFailure(f"[2001:db8:0:{number % 4}::1]:1", "nobody", "PLAIN", CREDENTIALS, "wrong"))
        for number in range(400):  # from four IPv6 networks, which count as four owners
            attempt(f"[2001:db8:0:{number % 4}::{number:x}]:5", "nobody")
        assert attempt("192.0.2.1:1", "nobody")
        assert attempt("10.0.0.1:2", "anna")
        assert done.wait(WAIT_S)
        assert any(found is BUSY for _, found in answers)
        assert ("10.0.0.1:2", "found") in answers
    finally:
        gate.stop()


def test_limits_count_networks_of_ipv6() -> None:
    assert network_of("2001:db8::1") == network_of("[2001:db8::ffff:2]") != network_of("2001:db8:0:1::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1" == network_of("192.0.2.1")
    assert network_of("somewhere") == "somewhere"
