"""How much room a log wants to have: a reserve for a full disk, spares beyond it, and a disk that is not nearly full.

Nothing more is let in once only the *reserve* is left and no container can be made. What goes on in it:

* one more batch that was let in before the disk was found full: a quarter of the rest at most. For one that is to take
  more, since it goes to many queues or is the commit of a large transaction, containers are made before;
* dequeue and delete records, 64 bytes each, at worst a sector each when they are flushed one by one;
* relocation: a slot is emptied into free room before its container comes back;
* openings: each start begins in a container of its own, and gives that of the last one back if nothing else was written
  there. Two containers are theirs, and run time never takes them.

Taking messages off frees space only when a slot is empty, or empty enough to be relocated: with a twentieth of it
gone. Until then the records for that twentieth pile up, which is a hundredth of the log for messages of 256 bytes. So
the reserve grows with the log.
"""

from __future__ import annotations

FOR_OPENINGS = 2
"""Containers that are left to openings."""
RESERVE_BYTES = 2 << 20
"""For the rest of the above."""
BATCHES = 4
"""So many batches of messages the rest has room for."""
RESERVE_SHARE = 64
"""And one container more for so many in use."""
SPARES = 1
"""Containers kept ready beyond the reserve."""
SPARES_TO_RESUME = 4
"""The same once none could be made: so many there must be before messages are stored again."""
LOW_WATER_BYTES = 4 << 20
"""Beside room for one container: what is left to SQL, and to others, when messages are stored no more."""


def reserve(container_bytes: int, used: int, rest_bytes: int = RESERVE_BYTES) -> int:
    """How many free containers are not for what is to be stored, with *used* of them in use."""
    return FOR_OPENINGS + -(-rest_bytes // container_bytes) + used // RESERVE_SHARE


def low_water(container_bytes: int) -> int:
    """With less than this left on the disk nothing more is stored."""
    return LOW_WATER_BYTES + container_bytes


def high_water(container_bytes: int) -> int:
    """From this on messages are stored again."""
    return 2 * low_water(container_bytes)
