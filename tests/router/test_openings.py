"""Properties of the table of connections that are not authenticated yet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.router.admission.openings import MOST_OPENING_S, SILENT_S, Openings
from cairnmq.router.listener import BURST_S, MOST_ADDRESSES, MOST_LOGGED, ConnectionRate

STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["comes", "leaves", "says"]), st.floats(0.0, 2 * SILENT_S)),
    max_size=80,
)


@given(STEPS, st.integers(1, 9))
def test_openings_are_bounded_and_the_largest_crowd_yields(
    steps: list[tuple[str, str, float]], most: int
) -> None:  # W5, issue 30: fleet
    """The table holds at most *most* entries, and drops the one silent for longest of an address with most entries.

    It has no place while that one is not silent for long enough: the client waits, and no other one is closed.
    """
    openings, there, now_s = Openings(most), list[tuple[str, int]](), 0.0
    heard_s = dict[tuple[str, int], float]()
    for number, (address, what, pause_s) in enumerate(steps):
        now_s += pause_s
        if what != "comes" and there:
            one = there.pop(number % len(there))
            if what == "leaves":
                openings.remove(one)
            else:
                openings.received(one, now_s)
                heard_s[one] = now_s
                there.append(one)
            continue
        counts = {name: sum(one[0] == name for one in there) for name, _ in there}
        crowds = [name for name, count in counts.items() if count == max(counts.values())]
        oldest = [next(one for one in there if one[0] == name) for name in crowds]
        if not openings.has_place(0, now_s):
            assert len(there) == most
            assert any(now_s - heard_s[one] < SILENT_S for one in oldest)
            continue
        found = openings.add((address, number), address, now_s)
        if len(there) < most:
            assert found is None
        else:
            assert found in oldest
            assert now_s - heard_s[found] >= SILENT_S
            there.remove(found)
        there.append((address, number))
        heard_s[address, number] = now_s
        assert len(openings) == len(there) <= most
        assert all(one in openings for one in there)


def test_openings_yield_in_time_if_they_trickle_or_are_checked() -> None:  # issue 30: fleet
    """A connection that goes on sending, or whose login is checked, yields its place only after `MOST_OPENING_S`."""
    openings = Openings(2, {"checked"}.__contains__)
    openings.add("trickles", "a", 0.0)
    openings.add("checked", "a", 0.0)
    openings.received("trickles", MOST_OPENING_S - SILENT_S / 2)
    assert not openings.has_place(0, MOST_OPENING_S - SILENT_S / 2)
    assert openings.has_place(0, MOST_OPENING_S)
    assert openings.add("new", "a", MOST_OPENING_S) == "checked"


@given(st.lists(st.floats(0, 3), min_size=1, max_size=200), st.integers(1, 20))
def test_connection_rate_bounds_every_span(pauses_s: list[float], most_per_s: int) -> None:  # W5
    """At most the burst and the rate are allowed in any period, and one address does not use the rate of another."""
    rate, now_s, allowed_s = ConnectionRate(most_per_s), 0.0, list[float]()
    for pause_s in pauses_s:
        now_s += pause_s
        if rate.allows("a", now_s):
            allowed_s.append(now_s)
    for number, begun_s in enumerate(allowed_s):
        for later, ended_s in enumerate(allowed_s[number:], 1):
            assert later <= most_per_s * (BURST_S + ended_s - begun_s) + 1e-6
    assert rate.allows("b", now_s)


def test_connection_rate_of_zero_is_none() -> None:
    rate = ConnectionRate(0)
    assert all(rate.allows("a", 0.0) for _ in range(1000))


def test_connection_rate_keeps_a_bounded_table() -> None:
    rate = ConnectionRate(1)
    for number in range(MOST_ADDRESSES * 2):
        rate.allows(str(number), 0.0)
    assert len(rate._left) == MOST_ADDRESSES


def test_refusals_of_one_address_hide_no_other_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    rate, now_s = ConnectionRate(1), 1000.0
    for step in range(400):
        for _ in range(BURST_S + 2):
            rate.admitted(("10.0.0.1", 1), now_s + step / 40)
    for _ in range(BURST_S + 1):
        rate.admitted(("10.0.0.2", 1), now_s + 9.99)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "10.0.0.1" in told[0]
    assert "10.0.0.2" in told[1]


def test_refusals_of_many_addresses_write_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    rate = ConnectionRate(1)
    for number in range(2000):
        for _ in range(BURST_S + 1):
            rate.admitted((f"10.0.{number // 200}.{number % 200}", 1), 1000.0)
    assert 0 < len(caplog.records) <= MOST_LOGGED
    assert len(rate._logged) <= MOST_LOGGED
