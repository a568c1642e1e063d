"""Members say where clients reach them, and clients are told of the others."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Data, symbol

from cairnmq.broker_plugin.membership import reachable
from cairnmq.cluster.nodes.failover_addresses import ClientAddresses
from cairnmq.router.admission.admission import Admission, AdmissionOptions

from .world import Sender, World


def at(*nodes: int) -> ClientAddresses:
    return ClientAddresses(
        tuple([(f"mq{node}", 5672) for node in nodes]), tuple([(f"mq{node}", 5671) for node in nodes])
    )


def knows(world: World, node: int, *others: int) -> bool:
    return world.until(lambda: world[node].core.addresses.others == at(*others))


def with_addresses(world: World | None = None) -> World:
    world = world or World()
    for node, member in world.members.items():
        member.places = at(node)
    return world.start()


def test_each_knows_the_others_who_come_and_go() -> None:
    world = with_addresses()
    heard: list[ClientAddresses] = []
    world[1].core.addresses.on_change = heard.append
    assert knows(world, 1, 2, 3)
    assert knows(world, 3, 1, 2)
    world[3].kill()
    assert knows(world, 1, 2)
    world[3].start()
    assert knows(world, 3, 1, 2)
    assert knows(world, 1, 2, 3)
    assert heard[-1] == at(2, 3)
    world[3].stop()
    world[3].places = ClientAddresses()
    world[3].start()
    assert world.until(lambda: world[3].serves)
    assert knows(world, 1, 2), "it says nothing"


def test_who_is_cut_off_sends_its_clients_to_those_it_knew() -> None:
    world = with_addresses()
    assert knows(world, 1, 2, 3)
    world.network.partition([1], [2, 3])
    assert world.until(lambda: not world[1].serves)
    world.run(2)
    assert world[1].core.addresses.others == at(2, 3)
    assert knows(world, 2, 3)
    world.network.heal()
    assert knows(world, 2, 1, 3)


def test_those_who_are_cut_off_with_it_come_last() -> None:
    world = with_addresses(World(5))
    assert knows(world, 1, 2, 3, 4, 5)
    client = Sender(world[1])
    assert world.until(lambda: client.driver is not None)
    world.network.partition([1, 2, 4], [3, 5])
    assert knows(world, 1, 2, 4), "the majority is here"
    world.network.heal()
    assert knows(world, 1, 2, 3, 4, 5)
    world.network.partition([1, 2], [3, 4, 5])
    assert world.until(lambda: bool(client.connection.expelled))
    assert client.connection.sent_elsewhere
    assert knows(world, 1, 3, 4, 5, 2)
    world.network.heal()
    assert knows(world, 1, 2, 3, 4, 5)


def decoded(answer: bytes) -> Any:
    data = Data()
    data.decode(answer)
    data.rewind()
    data.next()
    return data.get_dict()


def told(answer: bytes) -> list[tuple[str, int]]:
    properties: Any = decoded(answer)
    found = properties.get(symbol("failover-server-list"), [])
    return [(one[symbol("network-host")], int(one[symbol("port")])) for one in found]


def test_a_client_is_told_of_those_that_it_can_use() -> None:
    admission = Admission("me", AdmissionOptions((("far", 1),)))
    assert told(admission.admit(object(), "", "c", ()).properties) == [("far", 1)]
    admission.failover_to([("a", 2), ("far", 1)], [("b", 3)])
    assert told(admission.admit(object(), "", "c", ()).properties) == [("far", 1), ("a", 2)]
    assert told(admission.admit(object(), "", "c", (), secure=True).properties) == [("far", 1), ("b", 3)]
    assert told(admission.refuse("amqp:unauthorized-access", "no").properties) == [("far", 1), ("a", 2)]
    alone = Admission("me", AdmissionOptions())
    alone.failover_to([("a", 2)], [])
    alone.failover_to([], [])
    assert told(alone.admit(object(), "", "c", ()).properties) == []


def test_who_is_sent_away_is_told_where_to() -> None:
    admission = Admission("me", AdmissionOptions((("far", 1),)))
    admission.failover_to([("a", 2), ("far", 1)], [("b", 3)])
    info = decoded(admission.elsewhere())
    assert (info[symbol("network-host")], info[symbol("hostname")], info[symbol("port")]) == ("far", "far", 1)
    assert told(admission.elsewhere()) == [("far", 1), ("a", 2)]
    assert told(admission.elsewhere(secure=True)) == [("far", 1), ("b", 3)]
    assert Admission("me", AdmissionOptions()).elsewhere() == b"", "it knows nobody"


@pytest.mark.parametrize(
    ("host", "found"),
    [("192.0.2.7", "192.0.2.7"), ("2001:db8::1", "2001:db8::1"), ("127.0.0.1", ""), ("::1", ""), ("0.0.0.0", "here")],
)
def test_where_it_listens_is_where_it_is_found(host: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert reachable(ClientAddresses(((host, 5672),), ())) == ClientAddresses(((found, 5672),) if found else (), ())
