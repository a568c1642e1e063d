"""Connectors: connections that the broker keeps to other containers, and links that it keeps over them. Core only.

Those of the command line exist from the start. Those of management are stored in the wiring. Links between brokers, and
links that the broker keeps, are notified when the connection of their connector opens and closes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ...amqp.connector_target import Dialler, Target, parse
from ...amqp.links.attach import ABSENT
from ...amqp.ports import Attach, AttachedEnd, OutwardEnd, TerminalEnd
from ...base.errors import CairnError, StoreError
from ..kernel.context import CoreContext
from ..kernel.idle_driver import IdleDriver
from ..nodes.registry import behind_sql

log = logging.getLogger(__name__)

CONNECTOR = "connector:"
"""The names of configurations that are connectors."""
CONNECTING, UP, WAITING = "connecting", "up", "waiting"
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
"""The delay until a link is requested again, which doubles with each failure."""
Done = Callable[[Exception | None], None]


def remove_config(core: CoreContext, name: str, is_kept: bool, done: Done, change: Callable[[], None]) -> None:
    """Do *change*, then *done*: at once, or when the configuration *name* is deleted, if it is kept."""
    if is_kept:
        core.store.destroy_config(name, behind_sql(core.post, done, change))
    else:
        change()
        done(None)


class Connector:
    """A connector: its target, and the state of its connection."""

    def __init__(self, target: Target, since_us: int, *, kept: bool) -> None:
        self.target = target
        self.kept = kept
        """True if management created the connector."""
        self.state = CONNECTING
        self.connection: OutwardEnd | None = None
        self.since_us = since_us
        """The time at which the state was entered."""
        self.opened = 0
        """Connections so far."""
        self.failures = 0
        """The number of failed attempts, and of broken connections."""
        self.reason = ""
        """The reason of the last failure."""

    @property
    def name(self) -> str:
        return self.target.name


class Connectors:
    """The connectors of one broker."""

    def __init__(self, core: CoreContext) -> None:
        self.by_name: dict[str, Connector] = {}
        self.opened: list[Callable[[Connector, OutwardEnd], None]] = []
        """Callbacks for opened connections."""
        self.closed: list[Callable[[Connector], None]] = []
        """Callbacks for closed connections."""
        self._core = core
        self._dialler: Dialler | None = None
        self._secrets_dir = ""

    def start(self, dialler: Dialler, targets: tuple[Target, ...], secrets_dir: str) -> None:
        """Start to open connections: to *targets*, whose names differ, and to the stored ones.

        *secrets_dir*: the directory of the passwords and certificates of stored ones, empty for none. A user who may
        create connectors must not be able to send arbitrary files of this host to a server.
        """
        self._dialler, self._secrets_dir = dialler, secrets_dir
        for target in targets:
            self._add(target, kept=False)
        for config in self._core.store.configs():
            name = config.name.removeprefix(CONNECTOR)
            if name == config.name or name in self.by_name:
                continue
            try:
                self._add(self._target(name, config.settings), kept=True)
            except CairnError as error:  # a file is missing, for example: the broker works without this connector
                log.error("%s", error, extra={"event": "connector.failed"})

    def create(self, name: str, url: str, done: Done) -> None:
        """Make one, and keep it. *done* gets why not, or None."""
        settings = {"url": url}
        try:
            target = self._target(name, settings)
            if name in self.by_name:
                raise StoreError(f"connector {name}", "there is one of that name", "delete it first")
        except CairnError as error:
            done(error)
            return
        self._core.store.create_config(
            CONNECTOR + name, settings, lambda error: self._core.post(self._created, target, done, error)
        )

    def _target(self, name: str, settings: Mapping[str, Any]) -> Target:
        """Return the target from a stored configuration. Raises `CairnError`."""
        return replace(parse(str(settings.get("url", "")), secrets_dir=self._secrets_dir), name=name)

    def _created(self, target: Target, done: Done, error: Exception | None) -> None:
        if error is None and target.name not in self.by_name:
            try:
                self._add(target, kept=True)
            except CairnError as found:
                self._core.store.destroy_config(CONNECTOR + target.name, lambda error: None)
                error = found
        done(error)

    def delete(self, connector: Connector, done: Done) -> None:
        """Remove a connector. One of the command line returns with the next start."""
        name = CONNECTOR + connector.name
        remove_config(self._core, name, connector.kept, done, lambda: self._without(connector))

    def _without(self, connector: Connector) -> None:
        if self.by_name.get(connector.name) is connector:
            assert self._dialler is not None
            self._dialler.hang_up(connector.name)
            if connector.connection is not None:
                connector.connection.expel("the connector was deleted")
                self._lose(connector)
            del self.by_name[connector.name]

    def connected(self, name: str, connection: OutwardEnd) -> None:
        """Handle that a connector has opened a connection."""
        connector = self.by_name.get(name)
        if connector is None or connector.connection is not None:
            connection.expel("the connector was deleted")
            return
        connector.connection, connector.opened = connection, connector.opened + 1
        self._is_now(connector, UP)
        text = "connector %s: connected to container %r at %s"
        log.info(text, name, connection.container, connection.name, extra={"event": "connector.up"})
        for opened in self.opened:
            opened(connector, connection)

    def disconnected(self, name: str, connection: object, reason: str) -> None:
        """Handle that a connector has lost its connection, or failed to open one."""
        connector = self.by_name.get(name)
        if connector is None or (connector.connection is not None and connector.connection is not connection):
            return
        connector.failures += 1
        level = logging.WARNING if connector.state is not WAITING or connector.reason != reason else logging.DEBUG
        connector.reason = reason
        text = "connector %s: no connection to %s: %s"
        log.log(level, text, name, connector.target.place, reason, extra={"event": "connector.down"})
        if connector.connection is not None:
            self._lose(connector)
        self._is_now(connector, WAITING)

    def _add(self, target: Target, *, kept: bool) -> None:
        assert self._dialler is not None
        connector = Connector(target, self._core.clock.wall_us(), kept=kept)
        self.by_name[target.name] = connector
        try:
            self._dialler.dial(target)
        except BaseException:
            del self.by_name[target.name]
            raise

    def _lose(self, connector: Connector) -> None:
        connector.connection = None
        for closed in self.closed:
            closed(connector)

    def _is_now(self, connector: Connector, state: str) -> None:
        if state != connector.state:
            connector.state, connector.since_us = state, self._core.clock.wall_us()


class ConnectorLink:
    """A link over a connector, which the broker keeps open."""

    def __init__(self, name: str, connector: str) -> None:
        self.name = name
        self.connector = connector
        """The name of the connector, which may not exist yet."""
        self.state = WAITING
        self.reason = ""
        """The reason why the link is not up, or was not up before."""
        self.channel: AttachedEnd | None = None
        self.wait_s = FIRST_WAIT_S


_Link = TypeVar("_Link", bound=ConnectorLink)


class ConnectorLinks(Generic[_Link]):
    """Links that are requested again after they were closed or refused: when their connection is back, or later."""

    peer = "the other container"

    def __init__(self, core: CoreContext, connectors: Connectors) -> None:
        self.by_name: dict[str, _Link] = {}
        self._by_channel: dict[TerminalEnd, _Link] = {}
        self._core = core
        self._connectors = connectors
        connectors.opened.append(self.came)
        connectors.closed.append(self.went)
        core.events.link_closed.append(self._link_closed)

    def came(self, connector: Connector, connection: OutwardEnd) -> None:
        for link in self.by_name.values():
            if link.connector == connector.name and link.state == WAITING:
                link.wait_s = FIRST_WAIT_S
                self._attach(link, connection)

    def went(self, connector: Connector) -> None:
        for link in self.by_name.values():
            if link.connector == connector.name:
                self._end_link(link, "its connection broke")

    def _attach(self, link: _Link, connection: OutwardEnd) -> None:
        """Request *link* over *connection*, by `_request`."""
        raise NotImplementedError

    def _end_link(self, link: _Link, reason: str) -> None:
        """Handle that *link* is closed, if it was open or requested."""
        raise NotImplementedError

    def _request(
        self, link: _Link, connection: OutwardEnd, asked: Attach, opened: Callable[[AttachedEnd], None], *, sends: bool
    ) -> AttachedEnd:
        """Request a link, and return its channel, which *opened* gets when the peer has opened the link."""

        def answered(found: Attach) -> None:
            if link.channel is channel and (found.target if sends else found.source).kind != ABSENT:
                opened(channel)  # else its detach follows

        channel = connection.attach(asked, IdleDriver(), answered, sends=sends)
        link.channel = channel
        self._by_channel[channel] = link
        return channel

    def _link_closed(self, channel: TerminalEnd) -> None:
        """Request a closed link again, if this part owns it."""
        link = self._by_channel.get(channel)
        if link is not None and link.channel is channel:
            error = channel.error
            ended = f"{self.peer} ended it" if error is None else f"{error.condition}: {error.description}"
            self._end_link(link, link.reason or ended)
            self._try_later(link)

    def _try_later(self, link: _Link) -> None:
        self._core.scheduler.after(link.wait_s, self._try, link)
        link.wait_s = min(2 * link.wait_s, LONGEST_WAIT_S)

    def _try(self, link: _Link) -> None:
        connector = self._connectors.by_name.get(link.connector)
        is_due = self.by_name.get(link.name) is link and link.state == WAITING
        if is_due and connector is not None and connector.connection is not None:
            self._attach(link, connector.connection)
