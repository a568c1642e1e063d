"""The users: the resources that each has, against their quota, and the accounts of the users file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ...base.accounts import users as users_file
from ...base.accounts.credentials import Credentials
from ...base.callbacks import ignore
from ...broker.nodes.access_control import CONFIGURE, MANAGE
from ...broker.users.user_accounts import UserAccounts
from ..protocol.call import Call
from ..protocol.entity import Named, Operation, number, string
from ..protocol.request import BAD_REQUEST, CONFLICT, CREATED, FORBIDDEN, NOT_FOUND, Refusal, shown, text
from ..protocol.request import number as number_in
from .system import Reload, Reloaded

MOST_NAMES = 1000
Edit = Callable[[dict[str, Credentials]], None]


class AccountsPort(Protocol):
    """The users file, read and written outside the core. Each callback runs on the core."""

    has_rules: bool
    """True if access rules distinguish administrators from other users."""

    def change(self, edit: Edit, done: Callable[[Exception | None], None]) -> None:
        """Have *edit* change the accounts. *done* gets the `CairnError` or `Refusal` that left the file unchanged."""

    def names(self, after: str, count: int, done: Callable[[Sequence[str] | Exception], None]) -> None:
        """Have *done* get up to *count* names behind *after*, in order, or the `CairnError`."""


class UserType(Named):
    name = "user"
    meaning = (
        "A user with connections or queues: usage and quota. A limit of 0 means unlimited. CREATE, UPDATE, DELETE and "
        "ACCOUNTS are for the accounts in the file of `--users-file`, of this broker only."
    )

    def __init__(self, users: UserAccounts, accounts: AccountsPort | None, reload: Reload | None) -> None:
        """*accounts*: the users file; None without one."""
        self._reload = reload
        super().__init__(
            users.by_name,
            (
                number("connections", "Connections of the user.", lambda u: u.connections),
                number("links", "Links on the user's connections.", lambda u: u.links),
                number("queues", "Queues that the user owns.", lambda u: u.queue_count),
                number("durable-bytes", "Content of durable messages on the user's queues.", lambda u: u.durable_bytes),
                number("transient-bytes", "Messages on the user's queues that are not stored.",
                       lambda u: u.transient_bytes),
                number(
                    "throttled-links",
                    "Senders that wait for space on the user's queues or for the user's rate limit.",
                    lambda u: len(u.blocked) + len(u.paced),
                ),
                string("blocked", "Why senders to the user's queues wait for space; empty if they do not.",
                       users.block_reason),
                number("max-connections", "The limit of connections; 0 means `--max-connections-per-user`.",
                       lambda u: u.quota.max_connections),
                number("max-links", "The limit of links.", lambda u: u.quota.max_links),
                number("max-queues", "The limit of queues.", lambda u: u.quota.max_queues),
                number("max-durable-bytes", "The limit of durable bytes.", lambda u: u.quota.max_durable_bytes),
                number("max-messages-per-second", "The limit of the user's send rate.",
                       lambda u: u.quota.max_messages_per_second),
                number("max-disk-share", "Percent of the free disk space and the user's durable bytes together.",
                       lambda u: u.quota.max_disk_share),
                number("core-share", "The user's weight when connections compete for the core.",
                       lambda u: u.quota.core_share),
                number("max-queues-per-message", "The limit of queues that one message is routed to.",
                       lambda u: u.quota.max_queues_per_message),
            ),
            () if accounts is None else self._operations(accounts),
        )  # fmt: skip

    def _operations(self, accounts: AccountsPort) -> Sequence[Operation]:
        verifier = "`verifier` is `SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY`, as in the users file"
        return (
            Operation("CREATE", ("verifier",), f"Adds an account; {verifier}.", partial(self._create, accounts)),
            Operation(
                "UPDATE", ("verifier",), f"Changes the password of an account; {verifier}. Closes connections that "
                "logged in with another one.",
                partial(self._update, accounts),
            ),
            Operation(
                "DELETE", (), "Removes an account other than the caller's, and closes its connections; `closed` is the "
                "number of closed connections and links.",
                partial(self._delete, accounts),
            ),
            Operation(
                "ACCOUNTS", ("after", "count"),
                f"Returns the `names` of up to `count` accounts ({MOST_NAMES} by default and at most) behind the name "
                "`after`, in order.",
                partial(self._list, accounts),
            ),
        )  # fmt: skip

    def _create(self, accounts: AccountsPort, call: Call) -> None:
        name, verifier = self._account(accounts, call)

        def edit(found: dict[str, Credentials]) -> None:
            if name in found:
                raise Refusal(CONFLICT, f"there is a user {shown(name)} already; use another name")
            found[name] = verifier

        accounts.change(edit, call.then_answer(lambda _: {}, CREATED))

    def _update(self, accounts: AccountsPort, call: Call) -> None:
        name, verifier = self._account(accounts, call)

        def edit(found: dict[str, Credentials]) -> None:
            _known(found, name)
            found[name] = verifier

        def done(error: Exception | None) -> None:
            if name == call.link.attach.user:  # its own connection is closed, too
                call.then_answer()(error)
                if error is None and self._reload is not None:
                    self._reload(ignore, False)
            else:
                self._closing(call, error, "the password was changed")

        accounts.change(edit, call.then(done))

    def _delete(self, accounts: AccountsPort, call: Call) -> None:
        _check(accounts, call)
        call.asked()
        name = call.name()
        if name == call.link.attach.user:
            raise Refusal(CONFLICT, "a user can't remove its own account: log in as another user")

        def edit(found: dict[str, Credentials]) -> None:
            _known(found, name)
            del found[name]

        accounts.change(edit, call.then(lambda error: self._closing(call, error, "the account was removed")))

    def _closing(self, call: Call, error: Exception | None, change: str) -> None:
        """Close the connections that the account may not have any more after a *change*, and answer."""

        def reloaded(found: Reloaded | Exception) -> None:
            if isinstance(found, Exception):
                raise Refusal(CONFLICT, f"{change}, but its connections are open: {found}")
            call.closed = found.closed
            call.answer({"closed": found.closed})

        if error is not None or self._reload is None:
            call.then_answer()(error)
        else:
            self._reload(call.then(reloaded), False)

    def _list(self, accounts: AccountsPort, call: Call) -> None:
        _check(accounts, call)
        asked = call.asked()
        count = number_in(asked, "count", MOST_NAMES, MOST_NAMES, 1)
        accounts.names(text(asked, "after", ""), count, call.then_answer(lambda names: {"names": list(names)}))

    def _account(self, accounts: AccountsPort, call: Call) -> tuple[str, Credentials]:
        """Return the name and the verifier of a request. Raises `Refusal`."""
        _check(accounts, call)
        asked, name = call.asked(), call.name()
        if reason := users_file.invalid_name_reason(name):
            raise Refusal(BAD_REQUEST, reason)
        try:
            return users_file.account(f"{name}:{text(asked, 'verifier')}")
        except ValueError as error:
            raise Refusal(BAD_REQUEST, f"verifier: {error}") from error


def _check(accounts: AccountsPort, call: Call) -> None:
    """Raise `Refusal` unless the caller may manage the broker and configure what acts on behalf of others."""
    if not accounts.has_rules:
        text = "without access rules every user could change the accounts of all others"
        raise Refusal(FORBIDDEN, f"{text}; start the broker with --acl-file, or use `cairnmq users`")
    call.check(MANAGE, "")
    call.check(CONFIGURE, "")


def _known(found: dict[str, Credentials], name: str) -> None:
    if name not in found:
        raise Refusal(NOT_FOUND, f"there is no account {shown(name)}; add it with CREATE")
