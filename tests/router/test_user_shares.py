"""Properties of the scheduler that shares the turns of a worker between users."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.router.admission.user_shares import QUANTUM_BYTES, UserShares

READ_BYTES = 64 << 10
BACKLOGS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 6_000_000), min_size=1)


def turn(shares: UserShares, backlogs: dict[str, int]) -> dict[str, int]:
    """Run one turn in which all connections read as much as they may, and return the bytes read per user."""
    shares.begin_turn()
    read = dict.fromkeys(backlogs, 0)
    waiting = [user for user, left in backlogs.items() if left]
    while waiting:
        for user in [*waiting]:
            room = shares.room(user)
            size = min(READ_BYTES, backlogs[user], READ_BYTES if room is None else room)
            if room == 0:
                shares.wants(user)
            if not size:
                waiting.remove(user)
                continue
            shares.spend(user, size)
            backlogs[user] -= size
            read[user] += size
    return read


@given(BACKLOGS, st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5)))
def test_turns_are_bounded_and_all_is_read(backlogs: dict[str, int], weights: dict[str, int]) -> None:
    """If several users send, each reads its quantum in a turn, and at most one read more; all is read in the end."""
    shares = UserShares(lambda user: weights.get(user, 1))
    while any(backlogs.values()):
        before = dict(backlogs)
        senders = [user for user, left in before.items() if left]
        read = turn(shares, backlogs)
        for user in senders:
            quantum = weights.get(user, 1) * QUANTUM_BYTES
            if len(senders) == 1:
                assert read[user] >= min(before[user], quantum)
            else:
                assert min(before[user], quantum) <= read[user] <= quantum + READ_BYTES


@given(st.integers(2, 20_000_000))
def test_a_user_alone_is_not_limited(backlog: int) -> None:
    shares = UserShares(lambda user: 1)
    backlogs = {"a": backlog}
    assert turn(shares, backlogs) == {"a": backlog}
