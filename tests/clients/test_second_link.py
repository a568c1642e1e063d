"""Tests that a client which opens a second link of one name receives the reason at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from cairnmq.broker_plugin.run import RunningBroker

REASON = "the session has a link .* of that direction already"


# U4
@pytest.mark.parametrize(
    "attach",
    [lambda connection: connection.create_sender("q"), lambda connection: connection.create_receiver("q")],
    ids=["sender", "receiver"],
)
def test_blocking_client_receives_the_reason(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, attach: Callable[[BlockingConnection], Any]
) -> None:
    """Proton's `BlockingConnection` names links by their address, and shows no errors of sessions."""
    caplog.set_level("INFO")
    connection = BlockingConnection(f"127.0.0.1:{broker.port}", timeout=600)
    connection.create_sender("other").send(Message(body=b"m"))
    attach(connection)
    with pytest.raises(ConnectionException, match=REASON):
        attach(connection)
    assert "of that direction already: keep it, or name the second one" in caplog.text
