"""The accounts of users: the resources that each user has, against their quota.

A user owns the queues that were created for them: by management, on first use, for a subscription or for one link. The
owner is an argument of the queue, `OWNER`, so it is in the wiring, and known to all members of a cluster. Durable bytes
count for the owner of their queue, not for their sender: after a start the journal identifies no sender. A user over
the limit of durable bytes, or of the disk, is not rejected: senders to the user's queues get no credit and their links
are held (`throttle`), until messages are dequeued.

Accounts are local: in a cluster each member counts what it stores, and throttles its own clients. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...amqp.native.buffer_pool import DEFAULT_LIMIT_BYTES
from ...amqp.ports import TerminalEnd
from ...base.accounts.users import ANONYMOUS
from ...base.clock import Clock
from ...base.errors import QuotaExceeded
from ...store.contract.interface import MessageStore
from ..scheduling.scheduler import Scheduler
from ..scheduling.throttle import Throttle, Throttles
from .quotas import Quota, Quotas

OWNER = "x-cairnmq-owner"
"""The argument of a queue that names the user who owns it."""
LOW_MARK = 0.9
"""The used part of a limit of bytes at which a user who exceeded it is no longer throttled."""
LOOK_S = 0.5
"""The interval of checks of throttled users, beside changes of their queues: the disk may have room again."""
PACE_S = 0.02
"""The shortest time between two portions of credit for one user."""
SAMPLE_S = 0.25
"""The time for which a sample of the free space of the disk is valid."""
SAMPLE_SHARE = 16
"""The divisor of the free space: a new sample is taken once that part of it was stored."""
BACKSTOP_BYTES = DEFAULT_LIMIT_BYTES // 2 + (8 << 20)
BACKSTOP_SHARE = 8
"""The excess over a limit that is stored for messages in flight: these bytes, or this divisor of the limit.

When a user is blocked, half of the pool of buckets may be in flight to the core, and one batch is stored before the
links are held. So no sender to one queue that keeps to its credit meets the limit, however slow the core is.
"""
REMEDY = "in [[quotas]] of the file of --acl-file"


class Pace:
    """The pace of a user, in messages a second: a token bucket with the messages of at most one second.

    Its tokens become credit, which no sender can exceed.
    """

    def __init__(self, per_second: int, now_s: float) -> None:
        self.per_second = per_second
        self._tokens = float(per_second)
        self._now_s = now_s

    def take(self, wanted: int, now_s: float) -> int:
        """Take up to *wanted* messages from the bucket; return how many may be sent now."""
        self._fill(now_s)
        given = min(wanted, int(self._tokens))
        self._tokens -= given
        return given

    def wait_s(self) -> float:
        """Return the seconds from the last `take` until another message may be sent."""
        return max(0.0, (1 - self._tokens) / self.per_second)

    def _fill(self, now_s: float) -> None:
        gained = max(0.0, now_s - self._now_s) * self.per_second
        self._now_s = max(now_s, self._now_s)
        self._tokens = min(float(self.per_second), self._tokens + gained)


class OwnedQueue(Protocol):
    """A queue, as the account of its owner sees it."""

    queue_id: int
    account: UserAccount | None
    transient_bytes: int
    charged_bytes: int
    producers: dict[Any, None]

    @property
    def arguments(self) -> Mapping[str, Any]: ...


class UserAccount:
    """The account of one user: connections, links, queues and bytes."""

    def __init__(self, name: str, quota: Quota, throttles: Throttles, now_s: float) -> None:
        self.name = name
        """The name of the user in the access rules."""
        self.connections = self.links = 0
        self.queues: dict[OwnedQueue, None] = {}
        self.queues_being_made = 0
        self.durable_bytes = 0
        """The durable bytes on the queues that the user owns."""
        self.staged_bytes = 0
        """The stored bytes of messages that are still arriving for these queues."""
        self.transient_bytes = 0
        """The memory of messages on these queues that are not stored."""
        self.is_blocked = False
        """Senders to the user's queues are throttled, for the bytes on them."""
        self.blocked = Throttle(throttles)
        self.pace: Pace | None = None
        self.paced = Throttle(throttles)
        """The user's own senders, where they are faster than their pace."""
        self.is_pacing = False
        self.wide_owners: set[str] = set()
        """The owners of the queues of a message for so many that their dispatch takes several steps."""
        self.wide_step = 0
        """The step in which the user's last such message was enqueued."""
        self.set_quota(quota, now_s)

    def set_quota(self, quota: Quota, now_s: float) -> None:
        """Apply another quota from now on."""
        self.quota = quota
        rate = quota.max_messages_per_second
        if rate == 0:
            self.pace = None
            self.paced.release()
        elif self.pace is None or self.pace.per_second != rate:
            self.pace = Pace(rate, now_s)

    @property
    def queue_count(self) -> int:
        """Queues, those that are being made included."""
        return len(self.queues) + self.queues_being_made

    def counted_until_made(self, done: Callable[[Any], None]) -> Callable[[Any], None]:
        """Count a queue that is being made until the callback that this returns gets the result, for *done*."""
        self.queues_being_made += 1

        def made(result: Any) -> None:
            self.queues_being_made -= 1
            done(result)

        return made

    def queue_denial(self) -> QuotaExceeded | None:
        """Return why the user may not have another queue; None if they may."""
        return self._denial("queues", self.queue_count, self.quota.max_queues, "max-queues", "delete some")

    def link_denial(self) -> QuotaExceeded | None:
        """Return why the user may not have another link; None if they may."""
        return self._denial("links", self.links, self.quota.max_links, "max-links", "detach some")

    def fan_out_denial(self, count: int) -> str:
        """Return why a message of the user, or of a queue of theirs, may not go to *count* queues; empty if it may."""
        most = self.quota.max_queues_per_message
        if not 0 < most < count:
            return ""
        return (
            f"a message of user {self.name!r} would be put on {count} queues, {most} are allowed "
            f"(max-queues-per-message); bind fewer queues, or have max-queues-per-message raised {REMEDY}"
        )

    def _denial(self, what: str, have: int, most: int, limit: str, remedy: str) -> QuotaExceeded | None:
        if not 0 < most <= have:
            return None
        reason = f"has {have} of {most} {what} ({limit})"
        return QuotaExceeded(f"user {self.name!r}", reason, f"{remedy}, or have {limit} raised {REMEDY}")


class UserAccounts:
    """The accounts of all users, by name."""

    def __init__(self, store: MessageStore, clock: Clock, scheduler: Scheduler, quotas: Quotas) -> None:
        self.by_name: dict[str, UserAccount] = {}
        self.throttles = Throttles()
        self.changed: dict[OwnedQueue, None] = {}
        """Queues with an owner that changed in this step."""
        self._store = store
        self._clock = clock
        self._scheduler = scheduler
        self.quotas = quotas
        self._room_bytes: int | None = None
        self._sampled_s = float("-inf")
        self._stored_since = 0
        self._is_looking = False

    # ---- accounts -------------------------------------------------------------------------------------------------

    def of(self, user: str) -> UserAccount:
        """Return the account of *user*; anonymous users share one, of the empty name."""
        name = user or ANONYMOUS
        account = self.by_name.get(name)
        if account is None:
            account = self.by_name[name] = UserAccount(
                name, self._quota_of(name), self.throttles, self._clock.monotonic_s()
            )
        return account

    def _quota_of(self, name: str) -> Quota:
        return self.quotas.of("" if name == ANONYMOUS else name)

    def set_quotas(self, quotas: Quotas) -> None:
        """Apply other quotas from now on. Resources of a user beyond a new limit are kept."""
        self.quotas = quotas
        for name, account in self.by_name.items():
            account.set_quota(self._quota_of(name), self._clock.monotonic_s())
            self._look_at(account)

    def connection_closed(self, user: str) -> None:
        account = self.of(user)
        account.connections -= 1
        self._forget_idle(account)

    def link_closed(self, user: str, terminal: TerminalEnd) -> None:
        self.throttles.link_closed(terminal)
        account = self.of(user)
        account.links -= 1
        self._forget_idle(account)

    def _forget_idle(self, account: UserAccount) -> None:
        if not (account.connections or account.links or account.queue_count or account.is_pacing):
            self.by_name.pop(account.name, None)

    # ---- queues ---------------------------------------------------------------------------------------------------

    def owned(self, arguments: Mapping[str, Any], user: str) -> Mapping[str, Any]:
        """Return the *arguments* of a queue of *user*, with the owner; without a name only if a quota requires it."""
        if OWNER in arguments or not (user or self.quotas.names("")):
            return arguments
        return {**arguments, OWNER: user or ANONYMOUS}

    def queue_came(self, queue: OwnedQueue) -> None:
        """Add a queue that was created or recovered, or has another owner."""
        owner = _owner_in(queue.arguments)
        if owner is not None:
            account = queue.account = self.of(owner)
            account.queues[queue] = None
            account.transient_bytes += queue.transient_bytes
            self.changed[queue] = None

    def queue_went(self, queue: OwnedQueue) -> None:
        """Remove a queue that was deleted, or has another owner."""
        account, queue.account = queue.account, None
        if account is not None:
            del account.queues[queue]
            account.transient_bytes -= queue.transient_bytes
            account.durable_bytes -= queue.charged_bytes
            queue.charged_bytes = 0
            self.changed.pop(queue, None)
            self._look_at(account)
            self._forget_idle(account)

    def copy_came(self, arguments: Mapping[str, Any]) -> None:
        """Add a copy that was created or recovered: it counts as a queue that is being created."""
        if (owner := _owner_in(arguments)) is not None:
            self.of(owner).queues_being_made += 1

    def copy_went(self, arguments: Mapping[str, Any]) -> None:
        """Remove a copy that was deleted or promoted."""
        if (owner := _owner_in(arguments)) is not None:
            account = self.of(owner)
            account.queues_being_made -= 1
            self._forget_idle(account)

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Count the changes of a step of the core, and throttle users who exceed a limit now."""
        changed = [*self.changed]
        self.changed.clear()
        accounts: dict[UserAccount, None] = {}
        for queue in changed:
            account = queue.account
            if account is not None:
                if queue.queue_id:
                    self._charge(account, queue)
                accounts[account] = None
        for account in accounts:
            self._look_at(account)

    def stored(self, account: UserAccount, queue: OwnedQueue) -> None:
        """Count a batch that was stored on *queue*: block *account* at once if that exceeds a limit."""
        if not account.is_blocked:
            self._charge(account, queue)
            self._look_at(account)

    def _charge(self, account: UserAccount, queue: OwnedQueue) -> None:
        now_bytes = self._store.bytes_on(queue.queue_id)
        more_bytes = now_bytes - queue.charged_bytes
        queue.charged_bytes = now_bytes
        account.durable_bytes += more_bytes
        self._stored_since += max(0, more_bytes)

    def limit_bytes(self, account: UserAccount) -> int:
        """Return the limit of durable bytes of the user now, by the quota or the disk; 0 for no limit."""
        quota = account.quota
        limit, share = quota.max_durable_bytes, quota.max_disk_share
        if 0 < share < 100:
            room_bytes = self._room()
            if room_bytes is not None:
                fair = share * (account.durable_bytes + room_bytes) // 100
                limit = min(limit, fair) if limit else max(fair, 1)
        return limit

    def _room(self) -> int | None:
        now_s = self._clock.monotonic_s()
        room_bytes = self._room_bytes
        is_known = room_bytes is None or self._stored_since * SAMPLE_SHARE <= room_bytes
        if not is_known or now_s - self._sampled_s >= SAMPLE_S:
            self._room_bytes = room_bytes = self._store.room_bytes()
            self._sampled_s, self._stored_since = now_s, 0
        return room_bytes

    def block_reason(self, account: UserAccount) -> str:
        """Return the reason why senders to the user's queues are throttled; empty if they are not."""
        return self._state(account) if account.is_blocked else ""

    def _state(self, account: UserAccount) -> str:
        quota = account.quota
        have_bytes = account.durable_bytes + account.staged_bytes
        have = f"user {account.name!r} has {have_bytes} durable bytes"
        if 0 < quota.max_durable_bytes <= have_bytes / LOW_MARK:
            return f"{have} of {quota.max_durable_bytes} (max-durable-bytes)"
        return f"{have} of {self.limit_bytes(account)} that the disk has for one user (max-disk-share)"

    def excess(self, account: UserAccount, size_bytes: int) -> str:
        """Return the reason to reject a message of that size although its sender might wait; empty to accept it.

        It can never fit, or so much is in flight that others would have no room for it.
        """
        most = account.quota.max_durable_bytes
        if 0 < most < size_bytes:
            return (
                f"user {account.name!r} may have {most} durable bytes (max-durable-bytes), and the message has "
                f"{size_bytes}; send a smaller one, or have max-durable-bytes raised {REMEDY}"
            )
        limit = self.limit_bytes(account)
        most_bytes = limit + max(BACKSTOP_BYTES, limit // BACKSTOP_SHARE)
        if limit and account.durable_bytes + account.staged_bytes > most_bytes:
            return f"{self._state(account)}; take messages off the user's queues first"
        return ""

    def refusal_in_transaction(self, queues: Sequence[OwnedQueue], size_bytes: int) -> str:
        """Return why a message of that size to *queues* fails a transaction, which cannot wait; empty if not."""
        for queue in queues:
            account = queue.account
            if account is not None:
                if account.is_blocked:
                    return f"{self.block_reason(account)}; take messages off the user's queues first"
                if excess := self.excess(account, size_bytes):
                    return excess
        return ""

    def _look_at(self, account: UserAccount) -> None:
        limit = self.limit_bytes(account)
        if not account.is_blocked and 0 < limit <= account.durable_bytes:
            account.is_blocked = True
            for queue in account.queues:
                account.blocked.hold([producer.terminal for producer in queue.producers])
            self._keep_looking()
        elif account.is_blocked and (not limit or account.durable_bytes <= LOW_MARK * limit):
            account.is_blocked = False
            account.blocked.release()

    def _keep_looking(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._scheduler.after(LOOK_S, self._look)

    def _look(self) -> None:
        """Check blocked users: purged messages and files of other programs free space without an event."""
        self._is_looking = False
        for account in [account for account in self.by_name.values() if account.is_blocked]:
            for queue in account.queues:
                if queue.queue_id:
                    self._charge(account, queue)
            self._look_at(account)
            if account.is_blocked:
                self._keep_looking()

    # ---- pace -----------------------------------------------------------------------------------------------------

    def pace(self, account: UserAccount, terminal: TerminalEnd, wanted: int) -> int:
        """Return how much credit of *wanted* a sender of the user gets now; the rest is granted at the user's pace."""
        pace = account.pace
        if pace is None or not wanted:
            return wanted
        given = 0 if account.is_pacing else pace.take(wanted, self._clock.monotonic_s())
        if given < wanted:
            account.paced.withhold(terminal, wanted - given)
            self._pay_later(account, pace)
        return given

    def _pay_later(self, account: UserAccount, pace: Pace) -> None:
        if not account.is_pacing:
            account.is_pacing = True
            self._scheduler.after(max(PACE_S, pace.wait_s()), self._pay, account)

    def _pay(self, account: UserAccount) -> None:
        """Grant the next portion of credit."""
        account.is_pacing = False
        pace = account.pace
        if pace is not None:
            account.paced.release_some(lambda wanted: pace.take(wanted, self._clock.monotonic_s()))
            if len(account.paced):
                self._pay_later(account, pace)
        self._forget_idle(account)


def _owner_in(arguments: Mapping[str, Any]) -> str | None:
    """Return the owner that these arguments of a queue name, None without one; empty for those without a name."""
    owner = arguments.get(OWNER)
    if not isinstance(owner, str) or not owner:
        return None
    return "" if owner == ANONYMOUS else owner
