"""Tests of the data source on a standalone Spark cluster and through Spark Connect, without registration.

The package is installed as by a user, not in editable mode.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.analytics.views.journal import open_journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.tools.soak.servers import free_port

from .conftest import Fill

ROOT = Path(__file__).parents[2]
DEADLINE_S = 450
WORKERS = 2
pytestmark = pytest.mark.slow
_COUNT = """
import importlib.util, json, os, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.config("spark.ui.enabled", "false")
builder = builder.config("spark.python.authenticate.socketTimeout", "120s")
how, where, store = sys.argv[1:]
if how == "master":
    builder = builder.master(where).config("spark.driver.memory", "1g").config("spark.executor.memory", "512m")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
else:
    sys.path.remove(os.environ["PYTHONPATH"].partition(":")[0])  # what it starts has the package, and this has not
    assert importlib.util.find_spec("cairnmq") is None
    builder = builder.remote(where)
spark = builder.getOrCreate()
frame = spark.read.format("journal").option("maxPartitionBytes", "64k").load(store)
types = {row.type: row["count"] for row in frame.groupBy("type").count().collect()}
held = sorted(row.message_id for row in spark.read.format("journal").option("view", "messages").load(store)
              .filter("state = 'queued'").select("message_id").collect())
print("FOUND " + json.dumps({"types": types, "held": held}))
spark.stop()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package with pip from a copy of the source, and return the target directory."""
    source, target = tmp_path_factory.mktemp("source") / "cairnmq", tmp_path_factory.mktemp("installed")
    ignore = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, source, ignore=ignore, symlinks=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(source)]
    subprocess.run(command, check=True, timeout=DEADLINE_S, capture_output=True)
    return target


@pytest.fixture
def environment(installed: Path) -> dict[str, str]:
    """Return an environment whose Python has the installed package and site-packages without editable installs.

    `WITHOUT_PACKAGE` removes the package from it, to simulate a host where it is not installed.
    """
    packages = sysconfig.get_path("purelib")
    python = installed / "python"
    python.write_text(
        f"""#!/bin/sh
if [ -n "$WITHOUT_PACKAGE" ]; then export PYTHONPATH="$(echo ":$PYTHONPATH:" | sed 's#:{installed}:#:#g')"; fi
exec {sys.executable} -S "$@"
"""
    )
    python.chmod(0o755)
    return {
        **os.environ, "PYTHONPATH": f"{installed}:{packages}", "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield a list of processes, which are terminated after the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in reversed(started):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_text(path: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while text not in path.read_text(errors="replace"):
        assert process.poll() is None, path.read_text(errors="replace")[-3000:]
        assert time.monotonic() < deadline, path.read_text(errors="replace")[-3000:]
        time.sleep(0.05)


def count(environment: dict[str, str], how: str, where: str, store: Path) -> dict[str, object]:
    command = [environment["PYSPARK_PYTHON"], "-c", _COUNT, how, where, str(store)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.search(r"^FOUND (.*)$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    told: dict[str, object] = json.loads(found[1])
    return told


def expected(store: Path) -> dict[str, object]:
    types: dict[str, int] = {}
    own = open_journal(str(store))
    for batch in own.records(ReadOptions(copies="new"), ["type"]):
        for kind in batch["type"].to_pylist():
            types[kind] = types.get(kind, 0) + 1
    table = own.messages(columns=["message_id", "state"]).to_pylist()
    return {"types": types, "held": [row["message_id"] for row in table if row["state"] == "queued"]}


def cluster(tmp_path: Path, environment: dict[str, str], processes: list[subprocess.Popen[bytes]]) -> tuple[str, Path]:
    """Start a master and two workers; return the master's URL and log file."""
    import pyspark

    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = free_port()
    master = f"spark://127.0.0.1:{port}"

    def start(name: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        said = tmp_path / f"{name}.log"
        with open(said, "wb") as file:
            command = [str(spark_class), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
            process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, cwd=tmp_path)
        processes.append(process)
        return process, said

    leader, said = start("master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    wait_for_text(said, "New state: ALIVE", leader)
    for number in range(WORKERS):
        worker, received = start(
            f"worker{number}", "worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1",
            "--memory", "1g", "--work-dir", str(tmp_path / f"work{number}"), master,
        )  # fmt: skip
        wait_for_text(received, "Successfully registered with master", worker)
    return master, said


def launched_on(said: Path) -> int:
    """Return the number of workers that ran executors; a lost executor is launched again on a busy machine."""
    return len(set(re.findall(r"Launching executor \S+ on worker (\S+)", said.read_text())))


def test_a_cluster(
    tmp_path: Path, fill: Fill, environment: dict[str, str], processes: list[subprocess.Popen[bytes]]
) -> None:
    store = tmp_path / "store"
    fill(store, 400)
    master, said = cluster(tmp_path, environment, processes)
    assert count(environment, "master", master, store) == expected(store)
    assert launched_on(said) == WORKERS


def test_jobs_on_a_cluster(
    tmp_path: Path, fill: Fill, environment: dict[str, str], processes: list[subprocess.Popen[bytes]]
) -> None:
    """`cairnmq analyze --master` on a cluster yields the results of the views without Spark."""
    store, log = tmp_path / "store", tmp_path / "spark.log"
    fill(store, 400)
    master, said = cluster(tmp_path, environment, processes)
    command = [environment["PYSPARK_PYTHON"], "-c", "from cairnmq.cli.main import main; main()", "analyze"]
    asked = ["throughput", str(store), "--master", master, "--memory", "512M", "--json", "--spark-log", str(log)]
    done = subprocess.run(
        command + asked, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:] + log.read_text()[-3000:]
    found: dict[str, list[int]] = {}
    for row in map(json.loads, done.stdout.splitlines()):
        moved = found.setdefault(row["queue"], [0, 0])
        moved[0] += row["arrived"]
        moved[1] += row["left"]
    told = open_journal(str(store)).queues().to_pylist()
    assert found == {row["queue"]: [row["enqueued"], row["dequeued"]] for row in told}
    assert launched_on(said) == WORKERS


def test_jobs_where_workers_lack_the_package(
    tmp_path: Path, fill: Fill, environment: dict[str, str], processes: list[subprocess.Popen[bytes]]
) -> None:
    """A missing package on a worker is reported in one line with the host, the Python and the remedy."""
    store = tmp_path / "store"
    fill(store, 100)
    there = environment | {"WITHOUT_PACKAGE": "1"}  # changing PYTHONPATH has no effect: Spark 4.3 sends the driver's
    master, _ = cluster(tmp_path, there, processes)
    command = [environment["PYSPARK_PYTHON"], "-c", "from cairnmq.cli.main import main; main()", "analyze"]
    asked = ["depth", str(store), "--master", master, "--memory", "512M"]
    done = subprocess.run(
        command + asked, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("cairnmq: depth: worker on "), line
    assert "can't read journals (No module named 'cairnmq'); install CairnMQ with its extra spark there, or" in line


def test_spark_connect(tmp_path: Path, fill: Fill, environment: dict[str, str]) -> None:
    """A Spark Connect client without the package reads a journal."""
    store = tmp_path / "store"
    fill(store, 400)
    environment |= {"SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 1g\nspark.ui.enabled false\n")
    assert count(environment, "remote", "local[2]", store) == expected(store)
