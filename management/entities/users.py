"""The users: the resources that each has, against their quota."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...broker.users.user_accounts import UserAccount, UserAccounts
from ..protocol.entity import Attribute, Named


class UserType(Named):
    name = "user"
    meaning = "A user with connections or queues: usage and quota. A limit of 0 means unlimited."

    def __init__(self, users: UserAccounts) -> None:
        number = partial(Attribute, kind="number")
        super().__init__(
            users.by_name,
            (
                number("connections", meaning="Connections of the user.", read=lambda u: u.connections),
                number("links", meaning="Links on the user's connections.", read=lambda u: u.links),
                number("queues", meaning="Queues that the user owns.", read=lambda u: u.queue_count),
                number(
                    "durable-bytes", meaning="Content of durable messages on the user's queues.",
                    read=lambda u: u.durable_bytes,
                ),
                number(
                    "transient-bytes", meaning="Messages on the user's queues that are not stored.",
                    read=lambda u: u.transient_bytes,
                ),
                number(
                    "throttled-links",
                    meaning="Senders that wait for space on the user's queues or for the user's rate limit.",
                    read=lambda u: len(u.blocked) + len(u.paced),
                ),
                Attribute(
                    "blocked", "string", "Why senders to the user's queues wait for space; empty if they do not.",
                    users.block_reason,
                ),
                number(
                    "max-connections", meaning="The limit of connections; 0 means `--max-connections-per-user`.",
                    read=lambda u: u.quota.max_connections,
                ),
                number("max-links", meaning="The limit of links.", read=lambda u: u.quota.max_links),
                number("max-queues", meaning="The limit of queues.", read=lambda u: u.quota.max_queues),
                number(
                    "max-durable-bytes", meaning="The limit of durable bytes.",
                    read=lambda u: u.quota.max_durable_bytes,
                ),
                number(
                    "max-messages-per-second", meaning="The limit of the user's send rate.",
                    read=lambda u: u.quota.max_messages_per_second,
                ),
                number(
                    "max-disk-share", meaning="Percent of the free disk space and the user's durable bytes together.",
                    read=lambda u: u.quota.max_disk_share,
                ),
                number("core-share", meaning="The user's weight when connections compete for the core.",
                       read=lambda u: u.quota.core_share),
                number(
                    "max-queues-per-message", meaning="The limit of queues that one message is routed to.",
                    read=lambda u: u.quota.max_queues_per_message,
                ),
            ),
            (),
        )  # fmt: skip

    def name_of(self, entity: UserAccount) -> str:
        return entity.name

    def all(self) -> list[Any]:
        return list(self.by_name.values())
