"""Property of connections in the middle of a long message, which are recognized for any division of the bytes (F27)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis.strategies import integers, lists

from tests.fuzz.site import Site
from tests.harness.router.raw import AMQP, attach, begin, opening, transfer
from tests.harness.security.wire import message

EMPTY_FRAME = bytes.fromhex("0000000802000000")
"""A heartbeat."""
PART_BYTES = 4000


@settings(max_examples=40, deadline=None)
@given(lists(integers(1, 2 * PART_BYTES), max_size=30), integers(0, 3))
def test_a_long_message_is_on_its_way_from_its_first_part_to_its_last(sizes: list[int], heartbeat_at: int) -> None:
    """A connection counts as receiving a long message from the end of its first frame to the end of its last one."""
    site = Site()
    terminal = site.terminal()
    terminal.receive(AMQP + opening() + begin() + attach("s", 0, "q"))
    site.settle_down(terminal)
    turn = terminal.receive(transfer(0, 0, message()))
    assert turn.is_small
    content = message("x" * 5 * PART_BYTES)
    parts = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
    frames = [transfer(0, 1, part, more=part is not parts[-1]) for part in parts]
    first_bytes = len(frames[0])
    frames.insert(1 + heartbeat_at, EMPTY_FRAME)
    coming, done = b"".join(frames), 0
    for size in [*sizes, len(coming)]:
        read = coming[done : done + size]
        if not read:
            break
        turn = terminal.receive(read)
        done += len(read)
        site.settle_down(terminal)
        assert terminal.brings_long == (first_bytes <= done < len(coming))
        if first_bytes <= done < len(coming):
            assert not turn.is_small
    assert done == len(coming)
    assert site.world.queue().messages == 2
