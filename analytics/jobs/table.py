"""The table of jobs: what can be asked, by which function, and what it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from . import against_jobs, integrity_jobs, outcome_jobs, queue_jobs, space_jobs
from .views import Views

Run = Callable[[SparkSession, Views], DataFrame]


class Job(NamedTuple):
    """A question, and the function that answers it; its docstring says what the columns are, and in which units."""

    name: str
    title: str
    run: Run
    needs: str = ""
    """The field of `Asked` without which it can't run: then it is no part of *all*."""


def _jobs() -> dict[str, Job]:
    found = (
        Job("integrity", "Is the data whole?", integrity_jobs.integrity),
        Job("dead-stock", "What lies on queues, and how much of the log it keeps", space_jobs.dead_stock),
        Job("liveness", "How much of each container is living", space_jobs.liveness),
        Job("space", "What was written, and what of it twice", space_jobs.space),
        Job("groups", "How well records share a write and its sync", space_jobs.groups),
        Job("depth", "How many messages were on queues", queue_jobs.depth),
        Job("lifetimes", "How long messages stayed on queues", queue_jobs.lifetimes),
        Job("throughput", "What came to queues and left them", queue_jobs.throughput),
        Job("fan-out", "How many queues messages were put on", queue_jobs.fan_out),
        Job("transactions", "How transactions went, and how long from prepare to outcome", outcome_jobs.transactions),
        Job("in-doubt", "Prepared transactions that wait for their coordinator", outcome_jobs.in_doubt),
        Job("duplicates", "Messages with the same message-id", outcome_jobs.duplicates),
        Job("redeliveries", "Signs of messages that were delivered more than once", outcome_jobs.redeliveries),
        Job("expiry", "Why messages left, other than accepted", outcome_jobs.expiry),
        Job("trace-join", "What became of what a producer has sent", against_jobs.trace_join, "producer_log"),
        Job("compare", "Where the queues of two stores differ", against_jobs.compare, "other"),
    )
    return {job.name: job for job in found}


JOBS = _jobs()
