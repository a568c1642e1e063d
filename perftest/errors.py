"""What can go wrong between a load and its broker."""

from __future__ import annotations

from ..base.errors import CairnError


class BrokerError(CairnError):
    """The broker can't be reached, went away, or refused what the test needs."""


class NotMet(CairnError):
    """The others that a test waits for have not come."""
