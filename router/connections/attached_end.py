"""The worker's end of a channel that the broker has asked another container for (`channel.ports.AttachedEnd`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...amqp.links.credit import grant
from ...amqp.links.link import Link
from ...amqp.links.values import Terminus
from ...amqp.ports import Delivery, DriverEnd, KeptLink
from .channel_end import ChannelEnd
from .link_host import LinkHost

_ITS_OWN_FAULT = ("amqp:decode-error", "amqp:link:message-size-exceeded")


class OutwardChannelEnd(ChannelEnd):
    """The end of a channel that the broker opened: `opened` answers no attach, and `reject` may redirect."""

    def __init__(self, host: LinkHost, link: Link) -> None:
        super().__init__(host, link)
        self.on_refusal: Callable[[int], None] | None = None

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        if self.on_refusal is None or condition in _ITS_OWN_FAULT:
            super().reject(deliveries, credit, condition, description)
        else:
            self.hand_back(deliveries, 0)
            self.on_refusal(credit)

    def _do_opened(
        self,
        driver: DriverEnd,
        address: str | None,
        credit: int,
        filters: bytes,
        found: Terminus | None,
        kept: KeptLink | None,
    ) -> None:
        """Connect the open link with *driver*."""
        if not self._take(driver):
            return
        if self._link.sender:
            self._host.request(self._link)
        else:
            grant(self._link, credit)
