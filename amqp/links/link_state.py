"""The life of a link, from the wish of one side to its end, as a table.

| state | attach of this side | attach of the peer |
|---|---|---|
| `PLANNED` | not sent | not received |
| `REQUESTED` | not sent | received |
| `LEFT` | not sent | received, and a detach behind it |
| `GONE` | not sent | received, and a detach behind it that closes the link |
| `ATTACHING` | sent | not received |
| `ATTACHED` | sent | received |
| `CLOSED` | the link has ended, and nothing may be done on it or its deliveries | |

A link that is held is still attached: what arrives on it waits in proton. A detach that comes before the answer to its
attach waits for that answer, so that the attach takes effect (2.6.3).
"""

from __future__ import annotations

from enum import Enum, auto


class LinkState(Enum):
    """Progress of a link."""

    PLANNED = auto()
    REQUESTED = auto()
    LEFT = auto()
    GONE = auto()
    ATTACHING = auto()
    ATTACHED = auto()
    CLOSED = auto()


class LinkEvent(Enum):
    """An occurrence on either side of a link."""

    ATTACH = auto()
    """This side sends its attach."""
    PEER_ATTACH = auto()
    """The peer answers the attach of this side."""
    DETACH = auto()
    """This side ends the link and keeps its terminus."""
    CLOSE = auto()
    """This side closes the link."""
    PEER_DETACH = auto()
    """The peer has detached without closing the link."""
    PEER_CLOSE = auto()
    """The peer has closed the link."""
    LOST = auto()
    """The session or the connection of the link has ended."""


class LinkAction(Enum):
    """A step that this side takes on an event."""

    REFUSE = auto()
    """Answer the attach of the peer with one that has a null terminus."""
    DETACH = auto()
    """Send a detach that does not close the link."""
    CLOSE = auto()
    """Send a detach that closes the link."""
    REPORT = auto()
    """Tell the terminal that the link has ended."""
    FREE = auto()
    """Free the link in proton: both sides have detached it."""


_S, _E, _A = LinkState, LinkEvent, LinkAction
Step = tuple[LinkState, tuple[LinkAction, ...]]
_ENDS: dict[LinkEvent, Step] = {
    _E.DETACH: (_S.CLOSED, (_A.DETACH, _A.REPORT)),
    _E.CLOSE: (_S.CLOSED, (_A.CLOSE, _A.REPORT)),
    _E.PEER_DETACH: (_S.CLOSED, (_A.DETACH, _A.REPORT, _A.FREE)),
    _E.PEER_CLOSE: (_S.CLOSED, (_A.CLOSE, _A.REPORT, _A.FREE)),
    _E.LOST: (_S.CLOSED, (_A.REPORT,)),
}
"""Ends of a link whose attach this side has sent."""


def _unanswered(state: LinkState) -> dict[LinkEvent, Step]:
    """Return the steps of a link that the peer has detached, except for the answer to its attach."""
    return {
        **dict.fromkeys((_E.PEER_ATTACH, _E.PEER_DETACH, _E.PEER_CLOSE), (state, ())),
        **dict.fromkeys((_E.DETACH, _E.CLOSE), (_S.CLOSED, (_A.REFUSE, _A.CLOSE, _A.REPORT, _A.FREE))),
        _E.LOST: (_S.CLOSED, (_A.REPORT,)),
    }


TABLE: dict[LinkState, dict[LinkEvent, Step]] = {
    _S.PLANNED: {
        _E.ATTACH: (_S.ATTACHING, ()),
        _E.DETACH: (_S.CLOSED, ()),
        _E.CLOSE: (_S.CLOSED, ()),
        _E.LOST: (_S.CLOSED, ()),
        **dict.fromkeys((_E.PEER_ATTACH, _E.PEER_DETACH, _E.PEER_CLOSE), (_S.PLANNED, ())),
    },
    _S.REQUESTED: {
        _E.ATTACH: (_S.ATTACHED, ()),
        _E.PEER_ATTACH: (_S.REQUESTED, ()),
        _E.DETACH: (_S.CLOSED, (_A.REFUSE, _A.CLOSE, _A.REPORT)),
        _E.CLOSE: (_S.CLOSED, (_A.REFUSE, _A.CLOSE, _A.REPORT)),
        _E.PEER_DETACH: (_S.LEFT, ()),
        _E.PEER_CLOSE: (_S.GONE, ()),
        _E.LOST: (_S.CLOSED, (_A.REPORT,)),
    },
    _S.LEFT: {_E.ATTACH: (_S.CLOSED, (_A.DETACH, _A.REPORT, _A.FREE)), **_unanswered(_S.LEFT)},
    _S.GONE: {_E.ATTACH: (_S.CLOSED, (_A.CLOSE, _A.REPORT, _A.FREE)), **_unanswered(_S.GONE)},
    _S.ATTACHING: {_E.ATTACH: (_S.ATTACHING, ()), _E.PEER_ATTACH: (_S.ATTACHED, ()), **_ENDS},
    _S.ATTACHED: {_E.ATTACH: (_S.ATTACHED, ()), _E.PEER_ATTACH: (_S.ATTACHED, ()), **_ENDS},
    _S.CLOSED: {
        **dict.fromkeys(LinkEvent, (_S.CLOSED, ())),
        _E.PEER_DETACH: (_S.CLOSED, (_A.FREE,)),
        _E.PEER_CLOSE: (_S.CLOSED, (_A.FREE,)),
    },
}
"""By state and event: the next state, and what this side does, in order.

Proton rejects a second attach of the peer, and a detach before any attach; these change nothing.
"""
UNANSWERED = frozenset((LinkState.REQUESTED, LinkState.LEFT, LinkState.GONE))
"""States in which the attach of the peer waits for its answer."""
