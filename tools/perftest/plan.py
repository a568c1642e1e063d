"""The plan of a test: its options, and the clients that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...base.errors import CairnError
from .messages import MIN_BYTES, Body

SHARED, FANOUT, TOPIC = "shared", "fanout", "topic"
OURS = "CairnMQ"
"""The product name of a CairnMQ broker."""
MODES = (SHARED, FANOUT, TOPIC)
MOST_BYTES = 1 << 30
MOST_CLIENTS = 10_000
CONTROL = ("ready", "pub_start", "pub_done", "sub_done", "sub_iteration")
"""Queues by which the roles meet."""


class Addresses(NamedTuple):
    """The addresses of the broker's nodes: templates with {name}. The defaults are CairnMQ's, and qpidd's."""

    queue: str = "{name}"
    topic: str = "amq.topic/{name}"
    fanout: str = "amq.fanout"


@dataclass(frozen=True)
class Options:
    """All that the processes of one test must agree on."""

    mode: str = SHARED
    base_name: str = "perftest"
    pubs: int = 1
    subs: int = 1
    queues: int = 1
    count: int = 500_000
    size_bytes: int = 1024
    headers: int = 0
    durable: bool = False
    unique_data: bool = False
    confirms: bool = True
    sync_publish: bool = False
    window: int = 1000
    credit: int = 1000
    sub_ack: int = 100
    """Settle so many messages at a time; 0: the broker sends them settled."""
    pub_tx: int = 0
    sub_tx: int = 0
    async_commit: bool = False
    iterations: int = 1
    interval_pub_ms: float = 0.0
    interval_sub_ms: float = 0.0
    rate_per_s: float = 0.0
    """The rate of all publishers together; 0: as fast as possible."""
    single_connection: bool = False
    queue_durable: bool = False
    queue_max_count: int = 0
    queue_max_size: int = 0
    addresses: Addresses = Addresses()

    @property
    def all_pubs(self) -> int:
        return self.pubs * self.queues

    @property
    def all_subs(self) -> int:
        return self.subs * self.queues

    @property
    def quota(self) -> int:
        """Messages that each subscriber gets in an iteration."""
        if self.mode == SHARED:
            return self.pubs * self.count // self.subs if self.subs else 0
        return self.pubs * self.count

    @property
    def body(self) -> Body:
        return Body(self.size_bytes, self.durable, self.headers, self.unique_data)

    def durability(self, properties: Mapping[str, Any]) -> int:
        """The durability that links ask for, of a broker that makes their queue; ours makes it by management."""
        lasts = self.mode == SHARED and (self.durable or self.queue_durable)
        return 1 if lasts and properties.get("product") != OURS else 0

    def queue_names(self) -> list[str]:
        return [f"{self.base_name}{number}" for number in range(self.queues)] if self.mode == SHARED else []

    def control(self, name: str) -> str:
        """The address of a queue by which the roles meet."""
        return self.addresses.queue.format(name=f"{self.base_name}_{name}")

    def control_names(self) -> list[str]:
        return [f"{self.base_name}_{name}" for name in CONTROL]

    def address(self, queue: int) -> str:
        """The address for the messages of that queue or topic."""
        if self.mode == FANOUT:
            return self.addresses.fanout
        template = self.addresses.queue if self.mode == SHARED else self.addresses.topic
        return template.format(name=f"{self.base_name}{queue}")


def checked(options: Options) -> tuple[Options, list[str]]:
    """The options as they can be used, and what had to be changed. Raises `CairnError` if nothing helps."""
    warnings: list[str] = []
    if options.size_bytes > MOST_BYTES:
        raise CairnError(f"--size {options.size_bytes}", f"a message may have {MOST_BYTES} bytes", "lower it")
    if options.all_pubs + options.all_subs > MOST_CLIENTS:
        clients = options.all_pubs + options.all_subs
        raise CairnError(f"{clients} clients", f"one test has at most {MOST_CLIENTS}", "lower --qt, --npubs or --nsubs")
    if options.size_bytes < MIN_BYTES:
        options = replace(options, size_bytes=MIN_BYTES)
        warnings.append(f"--size is now {MIN_BYTES}: the numbers in each message take that")
    if options.mode == FANOUT and options.queues != 1:
        options = replace(options, queues=1)
        warnings.append("--qt does not matter with --mode fanout")
    if options.mode == SHARED and options.subs and options.count % options.subs:
        options = replace(options, count=options.count + options.subs - options.count % options.subs)
        warnings.append(f"--count is now {options.count}, the next multiple of --nsubs")
    if not options.all_pubs and not options.all_subs:
        raise CairnError("--npubs 0 --nsubs 0", "there is nothing to do", "raise one of them")
    if options.mode == SHARED and options.pubs and options.subs and options.queue_max_count:
        warnings.append("--queue-max-count may have messages refused, for which subscribers then wait")
    if options.sync_publish:
        if not options.confirms:
            raise CairnError("--sync-publish", "it waits for confirms", "leave out --pub-confirms no")
        options = replace(options, window=1)
    if not options.confirms and options.durable:
        warnings.append("without confirms, the durable messages that the broker has are unknown")
    options = replace(options, credit=max(options.credit, options.sub_ack, options.sub_tx))
    return options, warnings
