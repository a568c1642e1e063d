"""Properties of the token bucket of a user's messages, and of the throttle that withholds credit from senders."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.broker.scheduling.throttle import Throttle, Throttles
from cairnmq.broker.users.user_accounts import Pace


@given(
    per_second=st.integers(1, 10_000),
    steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 2000)), max_size=60),
)
def test_pace_never_gives_more_than_its_rate(per_second: int, steps: list[tuple[float, int]]) -> None:
    """A pace grants in any interval at most the tokens of the interval plus the burst of one second."""
    pace = Pace(per_second, 0.0)
    now_s = 0.0
    given_at: list[tuple[float, int]] = []
    for passed_s, wanted in steps:
        now_s += passed_s
        given = pace.take(wanted, now_s)
        assert 0 <= given <= wanted
        given_at.append((now_s, given))
    for first, (begun_s, _) in enumerate(given_at):
        total = 0
        for at_s, given in given_at[first:]:
            total += given
            assert total <= per_second * (at_s - begun_s + 1) + 1e-6 * total + 1


@given(per_second=st.integers(1, 10_000), wanted=st.integers(1, 5000))
def test_pace_gives_all_in_time(per_second: int, wanted: int) -> None:
    """A client that waits for `wait_s` may send at least one message after each wait."""
    pace, now_s, left, rounds = Pace(per_second, 0.0), 0.0, wanted, 0
    while left:
        given = pace.take(left, now_s)
        assert given or pace.wait_s() > 0
        left -= given
        now_s += pace.wait_s() + 1e-6
        rounds += 1
        assert rounds <= 2 * wanted + 2


class Link:
    """A sender link with the methods that a throttle uses."""

    def __init__(self) -> None:
        self.granted = 0
        self.held = False

    def grant(self, credit: int) -> None:
        self.granted += credit

    def hold(self) -> None:
        assert not self.held
        self.held = True

    def go_on(self) -> None:
        assert self.held
        self.held = False


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["withhold", "hold", "some", "all", "close"]), st.integers(0, 4), st.integers(1, 50)),
    max_size=50,
)


@given(ACTIONS)
def test_throttle_keeps_every_credit(actions: list[tuple[str, int, int]]) -> None:
    """Withheld credit is granted, still withheld, or dropped with its link; no link is held forever."""
    throttles = Throttles()
    throttle = Throttle(throttles)
    links: list[Any] = [Link() for _ in range(5)]
    owed = [0] * 5
    for what, which, number in actions:
        link = links[which]
        if what == "withhold":
            throttle.withhold(link, number)
            owed[which] += number
        elif what == "hold":
            throttle.hold([link])
        elif what == "some":
            before = sum(one.granted for one in links)
            left = number

            def take(wanted: int) -> int:
                nonlocal left
                given = min(wanted, left)
                left -= given
                return given

            throttle.release_some(take)
            kept = sum(owed) - before
            assert sum(one.granted for one in links) - before == min(number, kept)
        elif what == "all":
            throttle.release()
            assert not len(throttle)
        else:
            throttles.link_closed(link)
            links[which], owed[which] = Link(), 0
    throttle.release()
    assert [link.granted for link in links] == owed
    assert not any(link.held for link in links)


def test_throttle_that_released_its_links_is_not_kept() -> None:
    """A throttle that released its links is freed, as long-lived links meet a new throttle at each wait."""
    throttles = Throttles()
    link: Any = Link()
    throttle = Throttle(throttles)
    throttle.hold([link])
    throttle.withhold(link, 1)
    throttle.release()
    reference = weakref.ref(throttle)
    del throttle
    gc.collect()
    assert reference() is None
