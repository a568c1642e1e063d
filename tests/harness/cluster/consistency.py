"""Properties of the members when no event is in flight: all store the same messages and wiring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.harness.cluster import numbered_messages as letters
from tests.harness.cluster.cluster_harness import ClusterHarness
from tests.harness.cluster.histories import Broken, Standing


def checked(harness: ClusterHarness, sizes: Mapping[int, int]) -> Iterator[Standing]:
    """Yield the contents of each queue, or raise `Broken` if members differ. *sizes*: bytes sent, by number."""
    check_wiring(harness)
    for name in sorted(harness[1].core.owners.replicas):
        first = harness[1].contents(name)
        for node, member in harness.members.items():
            content = member.contents(name)
            if content != first:
                extra, missing = set(content) - set(first), set(first) - set(content)
                raise Broken(f"{name}: node {node} has {sorted(extra)[:9]}, node 1 has {sorted(missing)[:9]}")
            counted = member.core.owners.replicas[name].queue.messages
            if counted != len(content):
                raise Broken(f"{name}: node {node} counts {counted} messages, there are {len(content)}")
        check_stores(harness, name)
        check_contents(harness, name, sizes)
        check_marks(harness, name)
        yield Standing(name, first)


def check_wiring(harness: ClusterHarness) -> None:
    """Check that all members have the same queues, arguments, exchanges, bindings and policies."""
    found: dict[int, list[str]] = {}
    for node, member in harness.members.items():
        queues = [replica.queue for replica in member.core.owners.replicas.values()]
        found[node] = sorted(map(str, member.core.nodes.snapshot(queues)))
    for node, wiring in found.items():
        if wiring != found[1]:
            extra, missing = set(wiring) - set(found[1]), set(found[1]) - set(wiring)
            raise Broken(f"node {node} has the wiring {sorted(extra)}, node 1 has {sorted(missing)}")


def check_stores(harness: ClusterHarness, name: str) -> None:
    """Check that the store of each member has the same messages on a queue as its memory, and no leftovers."""
    for node, member in harness.members.items():
        replica = member.core.owners.replicas[name]
        stored = {*member.store.messages().get(replica.queue.queue_id, ())}
        entries = {entry.message_id for entry in replica.entries() if entry.message_id and not entry.is_dequeued}
        known = entries | {message_id for _, message_id in replica.stored()}
        if stored != known:
            left, lost = sorted(stored - known)[:9], sorted(known - stored)[:9]
            raise Broken(f"{name}: the store of node {node} has {left}, and does not have {lost}")


def check_contents(harness: ClusterHarness, name: str, sizes: Mapping[int, int]) -> None:
    """Check that messages are identical on all members, and complete as sent."""
    found = {node: member.whole_contents(name) for node, member in harness.members.items()}
    for node, contents in found.items():
        other = [at for at, content in contents.items() if content != found[1][at]]
        if other:
            raise Broken(f"{name}: what stands at {other[:9]} is not the same at the nodes 1 and {node}")
    for content in found[1].values():
        letter = letters.read(content)
        if not letter.is_complete or letter.size_bytes != sizes[letter.number]:
            raise Broken(f"{name}: {letter} is there, and was not sent so")


def check_marks(harness: ClusterHarness, name: str) -> None:
    """Check that members agree on which messages were delivered before, and on their failed deliveries."""
    marks = {node: member.marks(name) for node, member in harness.members.items()}
    for node, found in marks.items():
        other = {at: (mark, marks[1][at]) for at, mark in found.items() if mark != marks[1][at]}
        if other:
            raise Broken(f"{name}: node {node} has other marks than node 1: {dict([*other.items()][:9])}")
