"""Tests of `cairnmq analyze` as a process: its output, its files, and its one-line errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from cairnmq.base.extras import install_hint
from cairnmq.store.embedded.library import open_store
from tests.harness.spark.streams import newer_format

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "</script><script>document.title='owned'</script><a href='x'>"


def run(
    *arguments: str, stdout: int | IO[str] = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from cairnmq.cli.main import main; main()", "analyze", *arguments],
        stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=1000, check=False, env=os.environ | environment,
    )  # fmt: skip


@contextmanager
def begun(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a running `cairnmq analyze` in its own session; kill it at the end."""
    # a shell ignores SIGINT in background processes
    command = ["env", "--default-signal=INT", sys.executable, "-c", "from cairnmq.cli.main import main; main()"]
    running = subprocess.Popen(
        [*command, "analyze", *arguments, "--master", "local[1]"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stderr is not None
    return running.stderr.read()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("analyze") / "store"
    with open_store(str(path)) as made:
        for name in ("orders", HOSTILE):
            queue = made.queue(name)
            queue.put_all([b"cairn"] * 20).result()
            for _ in range(5):
                message = queue.take()
                assert message is not None
                message.accept().result()
    return str(path)


def test_what_is_wrong_is_one_line_before_spark_is_started(store: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nowhere = str(tmp_path / "no" / "rows.json")
    for arguments, told in (
        (("depths", store), "job 'depths': unknown job; one of all, integrity, "),
        (("depth", str(tmp_path / "nothing")), "nothing"),
        (("depth", str(tmp_path / "empty")), "empty"),
        (("depth", store, "--json", "--to", nowhere), nowhere),
        (("all", store, "--output", "csv"), "--output csv: the rows of different jobs"),
        (("depth", store, "--to", nowhere), "give --output json or --output csv"),
        (("trace-join", store), "no log of a producer is named; name one with --producer-log"),
        (("trace-join", store, "--producer-log", nowhere), "no such file"),
        (("compare", store), "no other store is named; name one with --with"),
        (("compare", store, "--with", str(tmp_path / "empty")), "empty"),
        (("depth", store, "--master", "spark://127.0.0.1"), "'127.0.0.1' is not a host and port; write spark://HOST:7077"),
        (("depth", store, "--master", "spark://127.0.0.1:1"), "127.0.0.1:1 can't be reached (Connection refused); see"),
    ):
        found = run(*arguments)
        assert (found.returncode, found.stdout) == (2, ""), arguments
        assert found.stderr.startswith("cairnmq: "), found.stderr
        assert told in found.stderr
        assert found.stderr.count("\n") == 1, found.stderr
    found = run("depth", store, JAVA_HOME=str(tmp_path))
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert found.stderr.startswith(f"cairnmq: JAVA_HOME={tmp_path}: there is no bin/java in it; ")


def test_a_store_of_a_newer_format(store: str, tmp_path: Path) -> None:
    mark = Path(shutil.copytree(store, tmp_path / "store")) / "journal" / "log.mark"
    data = bytearray(mark.read_bytes())
    for at in (0, 4096):
        newer_format(data, at)
    mark.write_bytes(data)
    found = run("depth", str(tmp_path / "store"))
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
    assert "is newer than this" in found.stderr


def test_where_rows_do_not_fit(store: str) -> None:
    found = run("groups", store, "--master", "local[1]", "--output", "csv", "--to", "/dev/full")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1), found.stderr
    assert "/dev/full: no space left" in found.stderr


@pytest.mark.parametrize("how", [("--json",), ()])
def test_where_standard_output_is_full(store: str, how: tuple[str, ...]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        found = run("groups", store, "--master", "local[1]", *how, stdout=full)
    told = "cairnmq: standard output: No space left on device; the output there is incomplete\n"
    assert (found.returncode, found.stderr) == (2, told)


def test_where_nobody_reads_on(store: str) -> None:
    """A closed output pipe, as with `| head`, is not an error."""
    with begun("groups", store, "--json") as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait(500) == 0
        assert said(running) == ""


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_in_the_middle(store: str, tmp_path: Path, signal_: signal.Signals) -> None:
    """A signal to the whole process group, as Ctrl-C sends it, interrupts the command with one line and no files."""
    log = tmp_path / "spark.log"
    with begun("all", store, "--json", "--to", str(tmp_path / "rows"), "--spark-log", str(log)) as running:
        until(lambda: log.exists() and "NativeCodeLoader" in log.read_text())
        os.killpg(running.pid, signal_)
        assert running.wait(500) == 128 + signal_
        assert said(running) == "cairnmq: interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["spark.log"]


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_pyspark_it_says_what_to_install(store: str, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('no', name='pyspark')\n")
    found = run("depth", store, PYTHONPATH=str(tmp_path))
    told = f"cairnmq: analyze: pyspark is missing; {install_hint('analysis')}\n"
    assert (found.returncode, found.stderr) == (2, told)


def test_a_report_of_all_jobs(store: str, tmp_path: Path) -> None:
    """All jobs write rows to a file and an HTML report with plots, in which queue names are escaped."""
    html, rows = tmp_path / "report.html", tmp_path / "rows.json"
    found = run("all", store, "--master", "local[2]", "--html", str(html), "--json", "--to", str(rows))
    assert (found.returncode, found.stdout) == (0, "")
    lines = found.stderr.splitlines()
    assert all(re.fullmatch(r"\d+ of \d+: [a-z-]+, (?:1 row|(?!1 )\d+ rows), \d+\.\d s", line) for line in lines), lines
    assert len(lines) == int(lines[-1].split()[0]) == int(lines[-1].split()[2].rstrip(":")) > 10
    told = [json.loads(line) for line in rows.read_text().splitlines()]
    depths = {row["queue"]: row["depth"] for row in told if row["job"] == "depth"}
    assert depths == {"orders": 15, HOSTILE: 15}
    assert not [row for row in told if row["job"] == "integrity"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "rows.json"]
    text = html.read_text()
    assert HOSTILE not in text
    for outside in ('src="http', 'href="http'):
        assert outside not in text.replace(text[text.index("<script>") : text.index("</script>")], "")
    if CHROMIUM is None:
        pytest.skip("there is no chromium to look at the report with")
    seen = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
         "--virtual-time-budget=20000", "--dump-dom", html.as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert "<title>CairnMQ: " in seen.stdout
    for job in ("depth", "lifetimes", "throughput", "liveness"):
        at = seen.stdout.index(f'id="plot-{job}"')
        assert "main-svg" in seen.stdout[at : at + 2000], job
