"""Tests of the session list in management while sessions begin and end."""

from __future__ import annotations

from tests.clients.conftest import NewPeer

from .conftest import Manager


def test_sessions_come_and_go(manager: Manager, new_peer: NewPeer) -> None:
    [own] = manager.rows("session")
    client = new_peer()
    client.sender("q")
    second = client.connection.session()
    second.open()
    client.receiver("q", session=second)
    client.receiver("q", session=second)
    mine = [row for row in manager.rows("session") if row["connection"] != own["connection"]]
    assert [(row["number"], row["links"]) for row in mine] == [(1, 1), (2, 2)]
    assert {row["session"] for row in manager.rows("link")} == {own["identity"], *(row["identity"] for row in mine)}
    [connection] = [row for row in manager.rows("connection") if row["identity"] == mine[0]["connection"]]
    assert (connection["sessions"], connection["links"]) == (2, 3)
    assert manager.ask("READ", "session", mine[1]["identity"]).body["links"] == 2
    assert manager.ask("READ", "session", "7.7").status == 404
    second.close()
    client.wait(lambda: second.state & second.REMOTE_CLOSED, "the session to end")
    assert mine[1]["identity"] not in {row["identity"] for row in manager.rows("session")}
    client.cut()
