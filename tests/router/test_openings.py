"""Properties of the table of connections that are not authenticated yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.router.admission.openings import Openings
from cairnmq.router.listener import BURST_S, MOST_ADDRESSES, ConnectionRate

STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["comes", "leaves", "says"])), max_size=80)


@given(STEPS, st.integers(1, 9))
def test_openings_are_bounded_and_the_largest_crowd_yields(steps: list[tuple[str, str]], most: int) -> None:  # W5
    """The table holds at most *most* entries, and drops the one silent for longest of an address with most entries."""
    openings, there = Openings(most), list[tuple[str, int]]()
    for number, (address, what) in enumerate(steps):
        if what != "comes" and there:
            one = there.pop(number % len(there))
            if what == "leaves":
                openings.remove(one)
            else:
                openings.received(one)
                there.append(one)
            continue
        there.append((address, number))
        found = openings.add(there[-1], address)
        if len(there) <= most:
            assert found is None
        else:
            counts = {name: sum(one[0] == name for one in there) for name, _ in there}
            assert isinstance(found, tuple)
            assert counts[found[0]] == max(counts.values())
            assert found == next(one for one in there if one[0] == found[0])
            there.remove(found)
        assert len(openings) == len(there) <= most
        assert all(one in openings for one in there)


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
