"""Seeds of the simulation, and defects put into the engine, each of which has to break a law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cairnmq.broker.duplicates import Duplicates
from cairnmq.broker.queue import Queue
from cairnmq.broker.shaped import ShapedQueue
from cairnmq.cluster import events, founding
from cairnmq.cluster.completion import Completion
from cairnmq.cluster.core import Core
from cairnmq.cluster.echo import Echo
from cairnmq.cluster.flow import Flow
from cairnmq.cluster.group import MemberId
from cairnmq.cluster.message_handler import MessageHandler
from cairnmq.cluster.ownership import QueueOwnership
from cairnmq.cluster.queue_owner import QueueOwnerHandler
from cairnmq.cluster.replica import Replica
from cairnmq.cluster.wiring import Wiring

from ..thorough import amount
from . import test_bad_input as bad_laws
from . import test_cluster as laws
from . import test_flow as flow_laws
from . import test_left_behind as left_behind_laws
from . import test_ownership as owner_laws
from . import test_seam as seam_laws
from . import test_shaped as shaped_laws
from . import test_updating as updating_laws
from .simulation import many

RUNS = amount("CAIRN_SIMULATIONS", 2000, 150)
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


def confirms_on_self_delivery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Completion, "_is_safe", lambda self, waiting: self.done > waiting.position)


def confirms_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Completion, "_is_safe", lambda self, waiting: True)


def owns_on_self_delivery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "when_safe", lambda self, position, action: action())


def forgets_what_a_dead_owner_handed_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "were_delivered", lambda self: None)


def keeps_what_dead_members_acquired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueOwnerHandler, "_come_back", lambda self, replica, position: None)


def forgets_tombstones(patch: pytest.MonkeyPatch) -> None:
    put_front = MessageHandler.put_front

    def put(self: MessageHandler, replica: Replica, *message: object) -> None:
        replica.tombstones.clear()
        put_front(self, replica, *message)  # type: ignore[arg-type]

    patch.setattr(MessageHandler, "put_front", put)


def takes_the_first_store(patch: pytest.MonkeyPatch) -> None:
    def least(states: dict[MemberId, founding.State], key: object) -> MemberId:
        return min(states, key=lambda member: member.node)

    def chosen(*among: object, **how: object) -> object:
        return least(*among, **how) if "key" in how else max(*among, **how)  # type: ignore

    patch.setattr(founding, "max", chosen, raising=False)


def trusts_any_store(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(founding.Founding, "_is_missed", lambda self, best, ours: False)


def takes_the_store_that_is_furthest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(founding.Founding, "_of_one_cluster", lambda self: self._states)


def serves_until_a_write_fails(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Flow, "_watch_full", lambda self: None)


def says_nothing_of_its_lag(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Flow, "look", lambda self, done, safe, parts_bytes: None)


def waits_for_the_dead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Flow, "left", lambda self, members: None)


def brings_no_memory_of_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Duplicates, "begin_with", lambda self, keys, transient: None)


def shares_groups_among_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueOwnership, "_is_kept", False)


def leaves_what_a_dead_owner_had_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShapedQueue, "now_decides", lambda self: None)


def hands_out_what_it_may_not_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Echo, "look", lambda self: None)


def answers_a_new_queue() -> None:
    seam_laws.test_a_change_of_the_wiring_is_answered_when_a_majority_has_made_it("a queue")


def tells_of_every_consumer(patch: pytest.MonkeyPatch) -> None:
    def consuming(self: QueueOwnerHandler, name: str) -> None:
        self._consumers[name] = self._consumers.get(name, 0) + 1
        self._speaking.say(events.told("consume", queue=name, first=self.replicas[name].first))

    patch.setattr(QueueOwnerHandler, "consuming", consuming)


def passes_on_though_nobody_else_wants_it(patch: pytest.MonkeyPatch) -> None:
    take = QueueOwnership.take
    patch.setattr(QueueOwnership, "take", lambda self, contested: take(self, contested=True))
    patch.setattr(QueueOwnership, "_fire", lambda self, turn: self.drop())


def hands_out_what_others_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "stop_consumers", lambda self: None)


def passes_on_to_the_lowest(patch: pytest.MonkeyPatch) -> None:
    def following(self: QueueOwnerHandler, replica: Replica, after: MemberId) -> MemberId | None:
        return min((one for one in replica.interested & self.synced if one != after), default=after)

    patch.setattr(QueueOwnerHandler, "_next", following)


def answers_before_others_have_the_wiring(patch: pytest.MonkeyPatch) -> None:
    change = Wiring.change

    def answer(self: Wiring, about: dict[str, Any], done: Callable[[Any], None]) -> None:
        change(self, about, lambda result: None)
        done(None)

    patch.setattr(Wiring, "change", answer)


DEFECTS: tuple[tuple[Patch, Callable[[], None]], ...] = (
    (confirms_on_self_delivery, laws.test_what_only_its_sender_heard_is_not_confirmed),
    (confirms_before_the_flush, laws.test_an_accept_is_settled_when_it_is_on_the_disks_of_a_majority),
    (owns_on_self_delivery, laws.test_a_member_that_nobody_hears_owns_nothing),
    (forgets_what_a_dead_owner_handed_out, laws.test_an_owner_that_dies_is_followed),
    (keeps_what_dead_members_acquired, laws.test_what_a_dead_member_had_comes_back_with_a_mark),
    (forgets_tombstones, updating_laws.test_what_is_taken_while_it_is_brought_stays_away),
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
    (hands_out_what_it_may_not_own, left_behind_laws.test_who_hears_nothing_of_what_it_says_hands_out_nothing),
)


@pytest.mark.parametrize(("defect", "law"), DEFECTS, ids=lambda one: one.__name__)
def test_a_defect_breaks_a_law(defect: Patch, law: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that no defect breaks says nothing."""
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        law()
