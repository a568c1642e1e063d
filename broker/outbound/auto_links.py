"""Auto-links: queues that are linked to an address of another container, without a client in between. Core only.

An *in* link receives messages from the other container's address, and puts them on a queue here, or through an
exchange; an *out* link sends the messages of a queue here to the other container. The other container sees an ordinary
client; here the link uses the drivers, credit and limits of all queues. So a message is durable at one end before it
leaves the other one: at least once, and outcomes are passed both ways.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...amqp.links.attach import SOURCE, TARGET, UNSETTLED, Attach, End
from ...amqp.ports import AttachedEnd, Open, OutwardEnd, TerminalEnd, Terminus
from ...base.errors import CairnError, StoreError
from ..links.context import LinkContext
from ..nodes.registry import behind_sql
from ..nodes.targets import AddressTarget, ExchangeTarget, keeps_messages, owner_of
from .connectors import FIRST_WAIT_S, UP, WAITING, ConnectorLink, ConnectorLinks, Connectors, Done, remove_config

log = logging.getLogger(__name__)

AUTO_LINK = "auto-link:"
"""The names of configurations that are auto-links; the rest is theirs."""
IN, OUT = "in", "out"
ATTACHING = "attaching"
REFUSAL_WAIT_S = 1.0
"""Seconds until the credit of refused messages is requested again."""


class AutoLink(ConnectorLink):
    """A link between a queue or exchange and an address of another container."""

    def __init__(
        self, name: str, direction: str, address: str, connector: str, external: str = "", *, kept: bool = False
    ) -> None:
        super().__init__(name, connector)
        self.direction = direction
        """`in` from the other container, or `out` to it."""
        self.address = address
        """The name of the queue or exchange here."""
        self.external = external or address
        """The address there."""
        self.kept = kept
        """True if management created the auto-link."""


def parse(text: str) -> AutoLink:
    """Parse `in|out:ADDRESS@CONNECTOR[:EXTERNAL]`. Raises `CairnError`."""
    direction, _, rest = text.partition(":")
    address, _, there = rest.partition("@")
    connector, colon, external = there.partition(":")
    if direction not in (IN, OUT) or not address or not connector or (colon and not external):
        raise CairnError(f"--auto-link {text}", "direction, address or connector is missing", _REMEDY)
    return AutoLink(text, direction, address, connector, external)


_REMEDY = "use in:ADDRESS@CONNECTOR or out:ADDRESS@CONNECTOR, followed by :EXTERNAL if the remote address differs"


OpenAt = Callable[[AddressTarget, Open, TerminalEnd], None]
"""Opens a link of the broker's own."""


class AutoLinks(ConnectorLinks[AutoLink]):
    """The auto-links of one broker."""

    def __init__(self, links: LinkContext, connectors: Connectors, container_id: str, open_at: OpenAt) -> None:
        super().__init__(links.core, connectors)
        self._links = links
        self._container_id = container_id
        self._open_at = open_at

    def start(self, given: Sequence[AutoLink]) -> None:
        """Start the auto-links of the command line and the stored ones. Call it before connections are accepted."""
        for link in given:
            self.by_name[link.name] = AutoLink(link.name, link.direction, link.address, link.connector, link.external)
        for config in self._core.store.configs():
            name = config.name.removeprefix(AUTO_LINK)
            if name == config.name or name in self.by_name:
                continue
            said = [str(config.settings.get(key, "")) for key in ("direction", "address", "connector", "external")]
            self.by_name[name] = AutoLink(name, *said, kept=True)

    def _attach(self, link: AutoLink, connection: OutwardEnd) -> None:
        sends = link.direction == OUT
        asked = Attach(
            f"{self._container_id}/{link.name}",
            End(SOURCE, link.address if sends else link.external),
            End(TARGET, link.external if sends else link.address),
            snd_settle_mode=UNSETTLED,
        )
        link.state, link.reason = ATTACHING, ""
        opened = partial(self._join, link, connection)
        channel = self._request(link, connection, asked, opened, sends=sends)
        channel.on_refusal = lambda credit: self._core.scheduler.after(REFUSAL_WAIT_S, self._ask_again, channel, credit)

    def _join(self, link: AutoLink, connection: OutwardEnd, channel: AttachedEnd) -> None:
        """Start dispatching, since the other container has opened the link."""
        if reason := self._links.members.not_serving_reason():
            self._fail(link, channel, reason)
            return

        def found(place: AddressTarget | Exception) -> None:
            if link.channel is not channel:
                return
            attach = Open(
                link.direction == OUT, Terminus(address=link.address), connection=connection, link_name=link.name,
                container=connection.container, relayed=True,
            )  # fmt: skip
            if owner_of(place) is not None:
                self._fail(link, channel, f"{link.address!r} belongs to a connection, and goes with it")
            elif isinstance(place, Exception):
                self._fail(link, channel, str(place.args[0]) if isinstance(place, LookupError) else str(place))
            elif keeps_messages(place) and (link.direction == IN or not isinstance(place, ExchangeTarget)):
                link.state = UP
                log.info("auto-link %s: up", link.name, extra={"event": "auto-link.up"})
                self._open_at(place, attach, channel)
            else:
                self._fail(link, channel, f"{link.address!r} is not a queue")

        self._links.resolver.find_for_itself(link.address, found)

    def _fail(self, link: AutoLink, channel: TerminalEnd, reason: str) -> None:
        link.reason = reason
        channel.failure("amqp:not-found", reason)

    def _ask_again(self, channel: AttachedEnd, credit: int) -> None:
        if channel in self._by_channel:
            channel.grant(credit)

    def _end_link(self, link: AutoLink, reason: str) -> None:
        if link.channel is None:
            return
        if link.state == UP:
            link.wait_s = FIRST_WAIT_S
        self._by_channel.pop(link.channel, None)
        link.channel, link.state, link.reason = None, WAITING, reason
        log.warning("auto-link %s: %s", link.name, reason, extra={"event": "auto-link.down"})

    def create(self, link: AutoLink, done: Done) -> None:
        """Make one, and keep it."""
        if link.name in self.by_name:
            done(StoreError(f"auto-link {link.name}", "there is one of that name", "delete it first"))
            return
        settings: Mapping[str, Any] = {
            "direction": link.direction, "address": link.address, "connector": link.connector,
            "external": link.external,
        }  # fmt: skip
        then = behind_sql(self._core.post, done, lambda: self._with(link))
        self._core.store.create_config(AUTO_LINK + link.name, settings, then)

    def delete(self, link: AutoLink, done: Done) -> None:
        """Remove an auto-link, and close its link. One of the command line returns with the next start."""
        remove_config(self._core, AUTO_LINK + link.name, link.kept, done, lambda: self._without(link))

    def _with(self, link: AutoLink) -> None:
        if link.name not in self.by_name:
            link.kept = True
            self.by_name[link.name] = link
            self._try(link)

    def _without(self, link: AutoLink) -> None:
        if self.by_name.get(link.name) is link:
            del self.by_name[link.name]
            if link.channel is not None:
                self._by_channel.pop(link.channel, None)
                link.channel.failure("amqp:link:detach-forced", "the auto-link was deleted")
                link.channel = None
