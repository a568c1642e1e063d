"""Tests of the simulation over many seeds, and of seeded defects in the engine, each of which makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cairnmq.broker.contents.sorted_order import SortedOrder
from cairnmq.broker.queues.deduplication import Deduplication
from cairnmq.broker.queues.queue import Queue
from cairnmq.cluster.group.member_id import MemberId
from cairnmq.cluster.group.membership import GroupMembership
from cairnmq.cluster.health.liveness import Liveness
from cairnmq.cluster.health.self_delivery_check import SelfDeliveryCheck
from cairnmq.cluster.kernel.commit_tracker import CommitTracker
from cairnmq.cluster.nodes.cluster_nodes import ClusterNodes
from cairnmq.cluster.replication.flow_control import FlowControl
from cairnmq.cluster.replication.message_handler import MessageHandler
from cairnmq.cluster.replication.ownership_handler import QueueOwnerHandler
from cairnmq.cluster.replication.queue_ownership import QueueOwnership
from cairnmq.cluster.replication.replica import Replica
from cairnmq.cluster.state_transfer import election
from tests.harness.cluster.simulation import many
from tests.harness.thorough import amount

from . import test_bad_input as bad_laws
from . import test_cluster as laws
from . import test_flow as flow_laws
from . import test_left_behind as left_behind_laws
from . import test_ownership as owner_laws
from . import test_seam as seam_laws
from . import test_shaped as shaped_laws
from . import test_silent_members as silent_laws
from . import test_updating as updating_laws

RUNS = amount("CAIRN_SIMULATIONS", 120, 20)
HANGS = amount("CAIRN_HANGS", 20, 4)
FIRST = 10_000
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(0)
def test_lives_of_a_cluster() -> None:  # D1 to D6, D13 to D15, D18 to D20, D27, D34, D41, D43, D74
    lives = many(FIRST, RUNS)
    assert not lives.failures, str(lives)
    assert lives.met["confirmed"] > 20 * RUNS
    assert lives.met["kill"] > RUNS // 2
    for what in ("purge-queue", "move-queue", "update-queue", "delete-queue", "create-queue", "create-binding"):
        assert lives.met[f"{what}-done"] > RUNS // 30, what
    assert all(lives.met[f"all-{how}"] > RUNS // 30 for how in ("stop", "kill", "cut"))


@pytest.mark.timeout(0)
def test_lives_where_members_hang_and_resume() -> None:  # B2, D2, D3
    lives = many(FIRST, HANGS, hangs=True)
    assert not lives.failures, str(lives)
    assert lives.met["expelled"] > HANGS // 4


def confirms_on_self_delivery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitTracker, "_is_safe", lambda self, waiting: self.done > waiting.position)


def confirms_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitTracker, "_is_safe", lambda self, waiting: True)


def owns_on_self_delivery(patch: pytest.MonkeyPatch) -> None:
    when_safe = CommitTracker.when_safe

    def at_once(self: CommitTracker, position: int, action: Callable[[], None], **how: Any) -> None:
        if isinstance(action, partial) and action.func.__name__ == QueueOwnerHandler._take.__name__:
            action()
        else:
            when_safe(self, position, action, **how)

    patch.setattr(CommitTracker, "when_safe", at_once)


def forgets_what_a_dead_owner_handed_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "were_delivered", lambda self: None)


def keeps_what_dead_members_acquired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueOwnerHandler, "_come_back", lambda self, replica, position: None)


def forgets_tombstones(patch: pytest.MonkeyPatch) -> None:
    is_awaited = MessageHandler.is_awaited

    def awaited(self: MessageHandler, replica: Replica, position: int) -> bool:
        replica.tombstones.clear()
        return is_awaited(self, replica, position)

    patch.setattr(MessageHandler, "is_awaited", awaited)


def takes_the_first_store(patch: pytest.MonkeyPatch) -> None:
    def least(states: dict[MemberId, election.StoreState], key: object) -> MemberId:
        return min(states, key=lambda member: member.node)

    def chosen(*among: object, **how: object) -> object:
        return least(*among, **how) if "key" in how else max(*among, **how)  # type: ignore

    patch.setattr(election, "max", chosen, raising=False)


def trusts_any_store(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "is_source_missing", lambda best, ours, states, size: False)


def takes_the_store_that_is_furthest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "of_one_cluster", lambda states: states)


def serves_until_a_write_fails(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlowControl, "_watch_full", lambda self: None)


def says_nothing_of_its_lag(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlowControl, "look", lambda self, done, safe, parts_bytes: None)


def waits_for_the_dead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlowControl, "left", lambda self, members: None)


def brings_no_memory_of_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deduplication, "begin_with", lambda self, keys, transient: None)


def shares_groups_among_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueOwnership, "_is_kept", False)


def leaves_what_a_dead_owner_had_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SortedOrder, "now_decides", lambda self: None)


def hands_out_what_it_may_not_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SelfDeliveryCheck, "look", lambda self: None)


def dispatches_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Liveness, "may_dispatch", lambda self, now_s: True)


def expels_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupMembership, "received_expulsion", lambda self, sender, expulsion: [])


def answers_a_new_queue() -> None:
    seam_laws.test_a_change_of_the_wiring_is_answered_when_a_majority_has_made_it("a queue")


def tells_of_every_consumer(patch: pytest.MonkeyPatch) -> None:
    def consuming(self: QueueOwnerHandler, name: str) -> None:
        self._consumers[name] = self._consumers.get(name, 0) + 1
        self._context.broadcaster.send_control("consume", queue=name, first=self.replicas[name].first)

    patch.setattr(QueueOwnerHandler, "consuming", consuming)


def passes_on_though_nobody_else_wants_it(patch: pytest.MonkeyPatch) -> None:
    take = QueueOwnership.take
    patch.setattr(QueueOwnership, "take", lambda self, contested: take(self, contested=True))
    patch.setattr(QueueOwnership, "_fire", lambda self, turn: self.drop())


def hands_out_what_others_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "stop_consumers", lambda self: None)


def passes_on_to_the_lowest(patch: pytest.MonkeyPatch) -> None:
    def following(self: QueueOwnerHandler, replica: Replica, after: MemberId) -> MemberId | None:
        return min((one for one in replica.interested & self._context.state.synced if one != after), default=after)

    patch.setattr(QueueOwnerHandler, "_next", following)


def answers_before_others_have_the_wiring(patch: pytest.MonkeyPatch) -> None:
    order = ClusterNodes.order

    def answer(self: ClusterNodes, about: dict[str, Any], done: Callable[[Any], None]) -> None:
        order(self, about, lambda result: None)
        done(None)

    patch.setattr(ClusterNodes, "order", answer)


DEFECTS: tuple[tuple[Patch, Callable[[], None]], ...] = (
    (confirms_on_self_delivery, laws.test_what_only_its_sender_heard_is_not_confirmed),
    (confirms_before_the_flush, laws.test_an_accept_is_settled_when_it_is_on_the_disks_of_a_majority),
    (owns_on_self_delivery, laws.test_a_member_that_nobody_hears_owns_nothing),
    (forgets_what_a_dead_owner_handed_out, laws.test_an_owner_that_dies_is_followed),
    (keeps_what_dead_members_acquired, laws.test_what_a_dead_member_had_comes_back_with_a_mark),
    (forgets_tombstones, updating_laws.test_what_is_taken_while_it_is_brought_stays_away),
    (forgets_tombstones, updating_laws.test_what_is_taken_while_it_is_compared_stays_away),
    (takes_the_first_store, updating_laws.test_all_go_down_and_the_store_that_is_ahead_wins),
    (trusts_any_store, updating_laws.test_a_member_that_was_being_updated_knows_that_somebody_is_ahead),
    (takes_the_store_that_is_furthest, bad_laws.test_where_as_many_are_of_one_cluster_as_of_another_all_wait),
    (serves_until_a_write_fails, bad_laws.test_a_member_with_a_full_disk_ends_and_the_others_go_on),
    (says_nothing_of_its_lag, flow_laws.test_a_majority_that_lags_holds_the_others),
    (waits_for_the_dead, flow_laws.test_who_leaves_holds_nobody),
    (brings_no_memory_of_ids, shaped_laws.test_the_same_message_id_is_taken_once_by_all),
    (shares_groups_among_members, shaped_laws.test_a_group_has_one_consumer_in_the_whole_cluster),
    (leaves_what_a_dead_owner_had_replaced, shaped_laws.test_the_newest_value_is_everywhere),
    (tells_of_every_consumer, owner_laws.test_the_first_consumer_is_told_and_the_last),
    (passes_on_though_nobody_else_wants_it, laws.test_a_queue_with_consumers_on_one_member_costs_nothing_for_them),
    (hands_out_what_others_own, owner_laws.test_only_the_owner_hands_out),
    (passes_on_to_the_lowest, owner_laws.test_owners_follow_each_other_in_the_order_of_nodes),
    (confirms_before_the_flush, seam_laws.test_an_answer_waits_for_the_disk_and_nothing_else_waits_for_the_answer),
    (answers_before_others_have_the_wiring, answers_a_new_queue),
    (dispatches_without_a_lease, silent_laws.test_resumed_leader_dispatches_nothing_before_it_learns_of_its_expulsion),
    (expels_nobody, silent_laws.test_resumed_leader_dispatches_nothing_before_it_learns_of_its_expulsion),
    (hands_out_what_it_may_not_own, left_behind_laws.test_who_hears_nothing_of_what_it_says_hands_out_nothing),
)


@pytest.mark.parametrize(("defect", "law"), DEFECTS, ids=lambda one: one.__name__)
def test_a_defect_breaks_a_law(defect: Patch, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test fails with the seeded defect; a test that no defect breaks proves nothing."""
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        law()
