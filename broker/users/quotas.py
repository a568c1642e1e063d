"""Quotas: limits for each user's use of the broker.

The file of access rules (`access_control`) has a list of quotas beside its rules; see `docs/reference/quotas.md`.
The first quota that matches the user decides; its missing limits are the broker's defaults. A limit of 0 is no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...base.accounts.users import ANONYMOUS, EVERYBODY

MOST = 1 << 62
MOST_CORE_SHARE = 1000
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Quota(NamedTuple):
    """The limits of one user; in the file with dashes for underscores."""

    max_connections: int = 0
    max_links: int = 10_000
    max_queues: int = 4_000
    max_durable_bytes: int = 0
    """Content of durable messages on the queues that the user owns."""
    max_messages_per_second: int = 0
    max_disk_share: int = 50
    """Percent that the user's durable bytes may have of themselves and the free space of the disk together."""
    core_share: int = 1
    """The weight of the user on the core while others wait for it: a user with 2 gets twice the time of one with 1."""
    max_queues_per_message: int = 1024
    """The maximum number of queues of one message, enqueued in one step of the core: 20 us each, with a consumer."""


DEFAULT = Quota()
UNLIMITED = Quota(0, 0, 0, 0, 0, 0, 1, 0)
"""The quota of anonymous users, unless a quota of the file names them."""
NAMES = tuple(name.replace("_", "-") for name in Quota._fields)
_MOST = {"max-disk-share": 100, "core-share": MOST_CORE_SHARE}


class Quotas:
    """The quotas of all users. Never changes; any thread."""

    def __init__(
        self, listed: tuple[tuple[frozenset[str], Mapping[str, int]], ...] = (), defaults: Quota = DEFAULT
    ) -> None:
        """*listed*: names and their limits, in the order of the file; *defaults*: of all users with a name."""
        self._listed = listed
        self.defaults = defaults

    def with_defaults(self, defaults: Quota) -> Quotas:
        """Return the quotas of the file over other defaults."""
        return Quotas(self._listed, defaults)

    def of(self, user: str) -> Quota:
        """Return the limits of *user*; an empty name stands for anonymous users."""
        name = user or ANONYMOUS
        base = self.defaults if user else UNLIMITED
        for who, limits in self._listed:
            if name in who or EVERYBODY in who:
                return base._replace(**limits)
        return base

    def names(self, user: str) -> bool:
        """Return whether a quota of the file names *user*, or all users."""
        name = user or ANONYMOUS
        return any(name in who or EVERYBODY in who for who, _ in self._listed)


def limits_of(table: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of one quota of the file, without its `who`. Raise `ValueError` for invalid ones."""
    limits: dict[str, int] = {}
    for name, value in table.items():
        if name == "who":
            continue
        if name not in NAMES:
            raise ValueError(f"there is no limit {name!r}; there are {', '.join(NAMES)}")
        number = _bytes(value) if name == "max-durable-bytes" and isinstance(value, str) else value
        least, most = int(name == "core-share"), _MOST.get(name, MOST)
        if type(number) is not int or not least <= number <= most:
            raise ValueError(f"{name} is {value!r}; it is a number from {least} to {most}")
        limits[name.replace("-", "_")] = number
    return limits


def _bytes(text: str) -> int:
    """Parse a size in bytes. Raise `ValueError` for an invalid one."""
    digits = text.rstrip("iBKMGT")
    unit = text[len(digits) :].removesuffix("B").removesuffix("i")
    if not digits.isdecimal() or unit not in _UNITS:
        raise ValueError(f"invalid size {text!r} (examples: 512K, 64MiB, 1GB)")
    return int(digits) * _UNITS[unit]
