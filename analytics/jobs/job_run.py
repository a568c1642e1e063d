"""Running jobs: their answers as Arrow tables, and Spark's failures in one sentence."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from ...base.errors import CairnError
from .table import JOBS, Job
from .views import Views, ViewsRequest

_OURS = re.compile(r"^(?:cairnmq(?:\.\w+)+: |RuntimeError: (?=worker on ))(.+)$", re.MULTILINE)
"""Errors of this package, and the error of `spark.workers` on workers without the package."""
_CONNECT_S = 10.0
_IN_JAVA = re.compile(r"^: ?(?:(?:\w+\.)+\w+: )?(.+)$", re.MULTILINE)
"""The error message of Java, for errors in which Python only names the failed call."""


def job_named(name: str) -> Job:
    """Return the job of that name. Raises `CairnError` if it does not exist."""
    if name not in JOBS:
        raise CairnError(f"job {name!r}", "unknown job", f"one of all, {', '.join(JOBS)}")
    return JOBS[name]


def chosen(name: str, asked: ViewsRequest) -> list[Job]:
    """The job of that name; of *all* those that can run with what was asked for. Raises `CairnError` if it can't."""
    if name == "all":
        return [job for job in JOBS.values() if not job.needs or getattr(asked, job.needs) is not None]
    job = job_named(name)
    if job.needs:
        asked.need(name, job.needs)
    return [job]


def conf_for(master: str) -> dict[str, str]:
    """The Spark configuration for a command that runs once."""
    conf = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.log.level": "ERROR"}
    if master.startswith("local"):
        conf |= {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "8",
        }  # fmt: skip
    return conf


def need_master(master: str) -> None:
    """Raise `CairnError` if *master* is a standalone cluster of Spark and none of its hosts accepts a connection.

    Spark itself retries for a minute, without a helpful error.
    """
    if not master.startswith("spark://"):
        return
    reason = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise CairnError(f"--master {master}", f"{place!r} is not a host and port", "write spark://HOST:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        except OSError as error:
            reason = f"{host}:{port} can't be reached ({error.strerror or error})"
        else:
            return
    raise CairnError(f"--master {master}", reason, "see that a Spark master runs there, and that this port is its own")


def started(start: Callable[[], SparkSession], master: str) -> SparkSession:
    """The session that *start* makes. Raises `CairnError` if Spark does not start."""
    need_master(master)
    try:
        spark = start()
    except (PySparkException, PySparkRuntimeError, Py4JError) as error:
        raise explained(f"Spark on {master}", error) from error
    counting: Any = spark.sparkContext
    # a thread of PySpark's prints a traceback otherwise if Java is ended by the signal that ends this
    counting._accumulatorServer.handle_error = lambda request, address: None
    return spark


def answer(job: Job, views: Views) -> pa.Table:
    """Return the rows of a job. Raises `CairnError`, also for failures of Spark."""
    try:
        return job.run(views.spark, views).toArrow()
    except (PySparkException, Py4JError) as error:
        raise explained(job.name, error) from error


def explained(place: str, error: Exception) -> CairnError:
    """A failure of Spark as an error in one sentence: the product's own error within it, or its first line."""
    text = str(error)
    if found := _OURS.findall(text) or _OURS.findall(str(getattr(error, "_stackTrace", ""))):  # where views are kept
        ours = str(found[-1]).strip()
        if "mode=PERMISSIVE" in ours:
            ours = ours.replace("read it with mode=PERMISSIVE", "use --skip-damaged")
        return CairnError(place, ours)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    if lines[0].startswith("An error occurred while calling ") and (said := _IN_JAVA.search(text)):
        lines = [said[1]]
    return CairnError(place, f"Spark failed: {lines[0][:300]}", "--spark-log FILE keeps the log of Spark")
