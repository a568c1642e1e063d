"""Tests of the cluster page and its HTTP API with three real members: leaders, states, lag, a missing member."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.cluster.real_cluster import PORT
from tests.harness.console.chromium import ConsolePage
from tests.harness.console.cluster_site import ClusterSite, cluster_site

NODES = (1, 2, 3)
LONG = b"x" * 200_000
COUNT = 100
"""Number of messages with the body `LONG` that a returning member lacks, so that the state transfer takes time."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSite]:
    pytest.importorskip("cairnmq.console.server", reason="no web console: pip install cairnmq[console]")
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with cluster_site(tmp_path_factory.mktemp("cluster")) as running:
        running.fill()
        yield running


def states(site: ClusterSite, node: int) -> dict[int, str]:
    return {number: row["state"] for number, row in site.members(node).items()}


def leaders(site: ClusterSite, node: int) -> dict[int, int]:
    """Return the number of queues that each member leads."""
    return {number: row["leader-of"] for number, row in site.members(node).items()}


def serves_without_one(site: ClusterSite, node: int) -> bool:
    report = site.get(node, "/cluster")
    return (report["missing"], report["connected"], report["serving"]) == (1, 2, True)


def wait_until_complete(site: ClusterSite, seen: list[str] | None = None) -> None:
    """Wait until each console shows three synchronized members; append member 3's states on member 1 to *seen*."""

    def is_complete() -> bool:
        found = states(site, 1)
        if seen is not None and seen[-1:] != [found[3]]:
            seen.append(found[3])
        return found == dict.fromkeys(NODES, "synchronized")

    site.scenario.wait(is_complete, "member 1 shows three synchronized members")
    site.scenario.wait(site.scenario.all_serve, "all members serve")
    site.scenario.wait(
        lambda: all(states(site, node) == dict.fromkeys(NODES, "synchronized") for node in (2, 3)),
        "the other members show them, too",
    )


def test_each_console_shows_members_and_leaders(site: ClusterSite) -> None:
    site.scenario.wait(lambda: all(leaders(site, node) == {1: 2, 2: 1, 3: 2} for node in NODES), "all show the leaders")
    reports = {node: site.get(node, "/cluster") for node in NODES}
    for node, report in reports.items():
        summary = {key: report[key] for key in ("enabled", "cluster", "phase", "serving", "connected", "needed")}
        assert summary == {
            "enabled": True, "cluster": "s1", "phase": "synchronized", "serving": True, "connected": 3, "needed": 2,
        }  # fmt: skip
        assert (report["missing"], report["unfinished"]) == (0, 0)
        assert report["owned-queues"] == leaders(site, node)[node]
        rows = report["members"]
        assert [row["node"] for row in rows] == [*NODES]
        assert [row["address"] for row in rows] == [f"{address(number)}:{PORT}" for number in NODES]
        assert [row["process"] for row in rows] == [site.scenario.brokers[number].process.pid for number in NODES]
        assert {row["state"] for row in rows} == {"synchronized"}
        assert [row["node"] for row in rows if row["this-one"]] == [node]
    incarnations = [[row["incarnation"] for row in report["members"]] for report in reports.values()]
    assert incarnations[0] == incarnations[1] == incarnations[2]
    assert len({*incarnations[0]}) == 3


def test_lag_is_shown_while_a_majority_does_not_acknowledge(site: ClusterSite) -> None:
    def report() -> Any:
        return site.get(1, "/cluster")

    site.scenario.wait(lambda: (report()["waiting-events"], report()["lag-bytes"]) == (0, 0), "nothing lags")
    client = site.client(1)
    sender = client.sender("orders")
    try:
        for node in (2, 3):
            site.scenario.brokers[node].process.send_signal(signal.SIGSTOP)
        delivery = client.post(sender, Message(body="waits", durable=True))
        client.settle_down()  # the broker has the message
        site.scenario.wait(lambda: report()["waiting-events"] >= 1, "the message waits for a majority")
        assert not delivery.settled
        assert states(site, 1) == dict.fromkeys(NODES, "synchronized"), "they are not expelled so soon"
    finally:
        for node in (2, 3):
            site.scenario.brokers[node].process.send_signal(signal.SIGCONT)
    client.wait(lambda: delivery.settled, "the message is confirmed")
    site.scenario.wait(lambda: (report()["waiting-events"], report()["lag-bytes"]) == (0, 0), "nothing lags again")


def test_stopped_member_is_missing_and_is_synchronized_when_it_is_back(site: ClusterSite) -> None:
    before = site.members(1)[3]
    assert site.scenario.brokers[3].stop() == 0
    for node in (1, 2):
        site.scenario.wait(lambda node=node: serves_without_one(site, node), f"member {node} shows it, and serves")  # type: ignore[misc]
        assert states(site, node) == {1: "synchronized", 2: "synchronized", 3: "not connected"}
        row = site.members(node)[3]
        assert (row["leader-of"], row["process"], row["incarnation"], row["this-one"]) == (0, 0, "", False)
    site.lead(2, "emails", "payments", "audit")
    site.scenario.wait(lambda: leaders(site, 1) == {1: 2, 2: 3, 3: 0}, "member 1 shows the new leader")
    site.send(1, "backlog", *(Message(body=LONG, durable=True) for _ in range(COUNT)))

    site.scenario.start_broker(3)
    seen: list[str] = []
    wait_until_complete(site, seen)
    assert site.get(1, "/cluster")["missing"] == 0
    assert any(state.startswith("transferring") for state in seen), seen
    after = site.members(1)[3]
    assert after["process"] == site.scenario.brokers[3].process.pid != before["process"]
    assert after["incarnation"] not in ("", before["incarnation"])
    assert site.get(3, "/queues/backlog")["messages"] == COUNT
    print(f"states of the member that came back: {', '.join(seen)}")


def test_page_shows_a_killed_member_until_it_is_back(site: ClusterSite) -> None:
    wait_until_complete(site)
    with site.browser(1) as browser:
        window = ConsolePage(browser, site.url(1)).sign_in("", "").open("cluster")
        rows = window.page.get_by_role("table", name="Members").locator("tbody tr")
        note = window.page.get_by_text("1 member is stopped or unreachable.")
        for number in range(3):
            rows.nth(number).get_by_text("synchronized").wait_for()
        assert "this broker" in rows.nth(0).inner_text()
        assert "2 queues" in rows.nth(0).inner_text()
        assert note.count() == 0
        for name, value in (
            ("Cluster", "s1"), ("This member serves clients", "yes"), ("Connected members", "3"), ("Majority", "2"),
            ("Incomplete queues", "0"), ("Events without a majority", "0"), ("Lag of this member", "0 bytes"),
        ):  # fmt: skip
            wait_for_fact(window, name, value)

        site.scenario.brokers[3].stop(signal.SIGKILL)
        note.wait_for()
        rows.nth(2).get_by_text("not connected").wait_for()
        address, process, incarnation = (rows.nth(2).locator("td").nth(place).inner_text() for place in (1, 4, 5))
        assert (address, process, incarnation) == ("\N{EN DASH}",) * 3
        wait_for_fact(window, "Connected members", "2")
        wait_for_fact(window, "This member serves clients", "yes")

        site.scenario.start_broker(3)
        rows.nth(2).get_by_text("synchronized").wait_for()
        wait_for_fact(window, "Connected members", "3")
        assert note.count() == 0
        assert window.problems == []
        window.close()


def wait_for_fact(window: ConsolePage, name: str, value: str) -> None:
    """Wait until the list above the table has *value* for *name*."""
    window.page.locator(f"main dl.facts dt:text-is('{name}') + dd:text-is('{value}')").wait_for()
