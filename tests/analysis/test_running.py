"""Tests that Spark errors are reported in one sentence, without Java, as Spark passes Python tracebacks as text."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from cairnmq.analytics.jobs.job_run import explained
from cairnmq.analytics.scan.files import open_log
from cairnmq.analytics.spark.workers import guarded
from cairnmq.base.errors import CairnError


def by_spark(error: Exception) -> PySparkException:
    """Return *error* as the exception that Spark raises for a failed task on another machine."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    return PySparkException(
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in "
        f"stage 3.0 (TID 6) (10.0.0.7 executor 1): org.apache.spark.api.python.PythonException: {trace}\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:602)"
        "\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n\nDriver stacktrace:"
    )


class Elsewhere:
    """A class whose module a worker does not have."""


def test_a_worker_without_the_package_says_what_is_to_be_done() -> None:
    load, (state,) = guarded(Elsewhere())
    with pytest.raises(RuntimeError) as raised:
        load(state.replace(Elsewhere.__module__.encode(), b"x" * len(Elsewhere.__module__)))
    said = str(explained("depth", by_spark(raised.value)))
    assert said.startswith("depth: worker on ")
    assert said.endswith("install CairnMQ with its extra spark there, or have PYSPARK_PYTHON name a Python that has it")
    assert "\n" not in said


def test_errors_of_this_package_are_told_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(CairnError) as raised:
        open_log(str(tmp_path / "gone"))
    assert str(explained("depth", by_spark(raised.value))) == f"depth: {raised.value}"


def test_of_a_call_into_java_is_told_what_that_says() -> None:
    error = PySparkException(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'\n\tat org.apache.spark.Spark"
    )
    said = str(explained("Spark on local[x]", error))
    assert said.startswith("Spark on local[x]: Spark failed: Could not parse Master URL: 'local[x]'; --spark-log")


def test_of_all_else_the_first_line_is_told() -> None:
    said = str(explained("depth", by_spark(ValueError("no sentence of ours"))))
    assert said.startswith("depth: Spark failed: Job aborted due to stage failure")
    assert said.endswith("--spark-log FILE keeps the log of Spark")
