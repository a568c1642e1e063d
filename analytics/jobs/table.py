"""The table of jobs: what can be asked, by which function, and what it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from . import against_jobs, integrity_jobs, outcome_jobs, queue_jobs, space_jobs
from .views import Views

Run = Callable[[SparkSession, Views], DataFrame]


class Job(NamedTuple):
    """A job; the docstring of its function describes the columns and their units."""

    name: str
    title: str
    run: Run
    needs: str = ""
    """The field of `Asked` without which it can't run: then it is no part of *all*."""


def _jobs() -> dict[str, Job]:
    found = (
        Job("integrity", "Errors and dangling references", integrity_jobs.integrity),
        Job("backlog", "Messages on queues, and the part of the log that they retain", space_jobs.backlog),
        Job("liveness", "Live part of each container", space_jobs.liveness),
        Job("space", "Amount written, and rewritten by compaction", space_jobs.space),
        Job("groups", "Records per block, the unit of writing and syncing", space_jobs.groups),
        Job("depth", "Number of messages on queues over time", queue_jobs.depth),
        Job("lifetimes", "Time that messages stayed on queues", queue_jobs.lifetimes),
        Job("throughput", "Arrivals and departures of queues over time", queue_jobs.throughput),
        Job("fan-out", "Number of queues that messages were enqueued on", queue_jobs.fan_out),
        Job("transactions", "Outcomes of transactions, and time from prepare to outcome", outcome_jobs.transactions),
        Job("in-doubt", "Prepared transactions that wait for their coordinator", outcome_jobs.in_doubt),
        Job("duplicates", "Messages with the same message-id", outcome_jobs.duplicates),
        Job("redeliveries", "Signs of messages that were delivered more than once", outcome_jobs.redeliveries),
        Job("expiry", "Reasons other than acceptance for which messages left", outcome_jobs.expiry),
        Job("trace-join", "Fate of the messages of a producer", against_jobs.trace_join, "producer_log"),
        Job("compare", "Differences between the queues of two stores", against_jobs.compare, "other"),
    )
    return {job.name: job for job in found}


JOBS = _jobs()
