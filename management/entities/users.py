"""Users: what each has of the broker, against their quota."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...broker.users.user_accounts import UserAccount, UserAccounts
from ..protocol.entity import Attribute, Named


class UserType(Named):
    name = "user"
    meaning = "A user who is connected or owns queues, with what the user has and may have; a limit of 0 is none."

    def __init__(self, users: UserAccounts) -> None:
        number = partial(Attribute, kind="number")
        super().__init__(
            users.by_name,
            (
                number("connections", meaning="Connections of the user.", read=lambda u: u.connections),
                number("links", meaning="Links on them.", read=lambda u: u.links),
                number("queues", meaning="Queues that the user owns.", read=lambda u: u.queue_count),
                number(
                    "durable-bytes", meaning="Content of durable messages on these queues.",
                    read=lambda u: u.durable_bytes,
                ),
                number(
                    "transient-bytes", meaning="Messages on them that are not stored.",
                    read=lambda u: u.transient_bytes,
                ),
                number(
                    "throttled-links",
                    meaning="Senders that wait: for room on the user's queues, or for the user's pace.",
                    read=lambda u: len(u.blocked) + len(u.paced),
                ),
                Attribute(
                    "blocked", "string", "Why senders to the user's queues wait for room; empty if they do not.",
                    users.block_reason,
                ),
                number(
                    "max-connections", meaning="0 for `--max-connections-per-user`.",
                    read=lambda u: u.quota.max_connections,
                ),
                number("max-links", meaning="The limit of links.", read=lambda u: u.quota.max_links),
                number("max-queues", meaning="The limit of queues.", read=lambda u: u.quota.max_queues),
                number(
                    "max-durable-bytes", meaning="The limit of durable bytes.",
                    read=lambda u: u.quota.max_durable_bytes,
                ),
                number(
                    "max-messages-per-second", meaning="The limit of what the user sends.",
                    read=lambda u: u.quota.max_messages_per_second,
                ),
                number(
                    "max-disk-share", meaning="Percent of the free space of the disk, and of the durable bytes.",
                    read=lambda u: u.quota.max_disk_share,
                ),
                number("core-share", meaning="The weight where users wait for the core.",
                       read=lambda u: u.quota.core_share),
                number(
                    "max-queues-per-message", meaning="The limit of queues that one message is put on.",
                    read=lambda u: u.quota.max_queues_per_message,
                ),
            ),
            (),
        )  # fmt: skip

    def name_of(self, entity: UserAccount) -> str:
        return entity.name

    def all(self) -> list[Any]:
        return list(self.by_name.values())
