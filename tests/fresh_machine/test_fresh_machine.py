"""Tests that execute the commands of README.md on a minimal Debian, and the walks of three new users.

| user | steps after the installation of README.md |
|---|---|
| backend developer | quick start, the tutorial on work queues |
| operator | the wheel in `/opt/cairnmq`, users and TLS, `ctl` and metrics, the guide "Where is my message?" |
| data engineer | Java and the extra `spark`, the Spark tutorial, the page for data engineers |

The machine time of each step is reported. `tests/packaging/test_operator_day.py` reports that of the Debian package and
the page "Operate CairnMQ for a day".
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.harness.thorough import amount

from ..readme_blocks import ROOT, blocks_of, readme, section
from .machine import CHECKOUT, HOST_PIP_CACHE, Machine, Stopwatch, Unavailable, reason_against

MARKS = (
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not amount("CAIRN_FRESH_MACHINES", 1, 0), reason="for thorough runs, or CAIRN_FRESH_MACHINES=1"),
)
PASSWORD = "one stone"
START = "venv/bin/cairnmq broker --store-dir ./data"
VERSIONS = "dpkg-query -W -f '${Package} ${Version}\\n'"
INSTALLS = "pip install ~/cairnmq"
READY = """
ready() {  # until the broker with the output file $1 and the process $2 serves
    until grep -qs ' broker.recovered ' "$1"; do
        kill -0 "$2" || { cat "$1"; return 1; }
        sleep 0.1
    done
}
ended() {  # in good order, by SIGTERM, which is what Ctrl-C does, too
    kill -TERM "$1"
    wait "$1"
}
"""


def serving(command: str, *scene: str) -> str:
    """Return a script that starts a broker as in README.md, runs the scene, and stops the broker."""
    begin = [READY, "rm -f broker.log", f"{command} > broker.log 2>&1 &", "broker=$!", "ready broker.log $broker"]
    return "\n".join((*begin, *scene, "ended $broker", "cat broker.log"))


def program(text: str) -> str:
    """Run a Python program."""
    return f"venv/bin/python -c {shlex.quote(text)}"


EXTRAS = {
    "postgresql": program("import psycopg; assert psycopg.pq.__impl__ == 'binary'"),
    "conformance": program("import cairnmq.store.conformance.suite"),
    "columns": "rm -rf lake && venv/bin/cairnmq export ./data ./lake",
    "sql": "venv/bin/cairnmq sql ./data 'select count(*) from messages'",
    "delta": "rm -rf lake && venv/bin/cairnmq export ./data ./lake --format delta",
    "iceberg": "rm -rf lake && venv/bin/cairnmq export ./data ./lake --format iceberg",
    "plot": program("import matplotlib.pyplot"),
    "spark": program("import cairnmq.analytics.spark.session, pyspark.sql.connect.client, pandas"),
    "analysis": program("import cairnmq.analytics.jobs.report, cairnmq.analytics.jobs.plots, plotly.graph_objects"),
    "interop": program("import azure.servicebus, rabbitmq_amqp_python_client"),
    "fuzz": program("import atheris"),
    "bench": f"{program('import rocksdict')} && venv/bin/py-spy --version",
    "console": program("import cairnmq.console.server, starlette, uvicorn"),
    "otel": program("import opentelemetry.exporter.otlp.proto.http.trace_exporter, opentelemetry.sdk.trace"),
    "docs": "venv/bin/mkdocs --version",
    "dev": f"{program('import build, ipykernel, nbclient, pytest_timeout, trustme, xdist')} && venv/bin/ruff --version"
    " && venv/bin/mypy --version",
}
"""Commands that use the packages of each extra."""


WALK = """
import sys
from pathlib import Path
from tests.docs.walk import executed_blocks, reader
with reader(Path.home() / "tutorial" / Path(sys.argv[1]).stem) as walk:
    for block in executed_blocks(sys.argv[1]):
        walk.execute(block)
"""
"""Program that executes a page in a directory with the name of the page."""
Tell = Callable[[str], None]


@contextmanager
def machine(release: str, tell: Tell) -> Iterator[Machine]:
    """Yield a new machine, which is removed at the end; skip the test if it cannot be created."""
    reason = reason_against()
    made = None
    if reason is None:
        try:
            made = Machine(release)
        except Unavailable as error:
            reason = str(error)
    if made is None:
        tell(f"Debian {release} is not tested, because it can't be made here: {reason}")
        pytest.skip(f"no Debian system can be made here: {reason}")
    try:
        yield made
    finally:
        made.close()


def on_machine(test: Callable[[Tell], None]) -> Callable[[Tell], None]:
    """Mark a test that installs everything on a new machine."""
    for mark in MARKS:
        test = mark(test)
    return test


def install(there: Machine, watch: Stopwatch) -> str:
    """Run the first commands of README.md in the checkout, and return a command that starts a broker."""
    there.run("apt-get update", online=True)
    packages, _, run = readme("Quick start")[0].commands
    there.run(packages, online=True)
    watch.lap("git and make")
    before = there.run(VERSIONS)
    said = there.run(started_by(run), online=True)
    watch.lap(run)
    present = {line.split()[0] for line in before.splitlines()}
    needed = (ROOT / "scripts/debian-packages").read_text().split()
    [line] = [line for line in said.splitlines() if "are missing on this host" in line]
    assert line.partition(": ")[2].split() == [package for package in needed if package not in present]
    assert set(before.splitlines()) <= set(there.run(VERSIONS).splitlines()), "a package was upgraded or removed"
    there.run(started_by(run, *readme("Quick start")[1].commands))  # offline, as everything is installed
    return START


def install_by_hand(there: Machine, watch: Stopwatch) -> str:
    """Run the commands of the page on installation, and return a command that starts a broker."""
    there.run("apt-get update", online=True)
    packages, environment, _ = section("how-to/install.md", "From a checkout")[0].commands
    there.run(packages, online=True)
    watch.lap("Debian packages")
    there.run(environment, online=True)
    watch.lap("pip install")
    return START


def started_by(run: str, *scene: str) -> str:
    """Return a script that starts a broker with `make run`, runs the scene, and stops the broker with Ctrl-C."""
    make = f"setsid env --default-signal=INT sh -c 'echo $$ > run.pid; exec {run}'"
    begin = f"({make} || :; touch run.ended) > run.log 2>&1 &"
    failed = "[ ! -e run.ended ] || { cat run.log; exit 1; }"
    wait = f"until grep -qs 'web console: *http' run.log; do {failed}; sleep 0.1; done"
    end = "kill -INT -$(cat run.pid)\nuntil [ -e run.ended ]; do sleep 0.1; done\ncat run.log"
    return "\n".join(("rm -f run.log run.ended", begin, wait, *scene, end))


def first_message(there: Machine, start: str) -> None:
    [message] = readme("Quick start", "python")
    once = serving(start, program(message.text), "venv/bin/cairnmq ctl queues list")
    for _ in range(2):  # the first run leaves no messages
        said = there.run(once)
        assert said.count("cairn 1\ncairn 2\n") == 1
        [row] = [line for line in said.splitlines() if line.startswith("orders ")]
        assert row.split()[2] == "0", said


def login(there: Machine) -> None:
    """Execute the guide to TLS and users, with every client that the packages permit."""
    users, certificates, start, use, _ = section("how-to/tls-and-users.md", None)
    [rules] = [one for one in blocks_of(ROOT / "docs/how-to/access-rules.md") if one.title == "rules.toml"]
    (there.place / "root/cairnmq/rules.toml").write_text(rules.text)
    there.run(f"printf '%s\\n' {shlex.quote(PASSWORD)} | {users.commands[0]}\n{users.commands[1]}")
    there.run("\n".join(certificates.commands))
    [command], asks = start.commands, use.commands
    ours = program(
        "from proton.utils import BlockingConnection\n"
        f"BlockingConnection('127.0.0.1:5672', user='anna', password='{PASSWORD}', timeout=60).close()\n"
        "print('logged in by proton')"
    )
    said = there.run(serving(command, *asks, ours), CAIRNMQ_PASSWORD=PASSWORD)
    assert said.count("durable") == len(asks), said
    assert "logged in by proton" in said
    assert "failed" not in said


def operate(there: Machine, start: str) -> None:
    """Execute the guides to management and metrics."""
    asks = [one for one in section("how-to/manage-queues.md", None) if not one.title]
    [metrics] = [one for one in section("how-to/monitoring.md", None) if one.title or "--metrics-port" in one.text]
    [message] = readme("Quick start", "python")
    there.run(serving(start, program(message.text), *(f"venv/bin/{line}" for one in asks for line in one.commands)))
    fetch = program(
        "from urllib.request import urlopen\n"
        "for path in ('metrics', 'ready'): print(urlopen(f'http://127.0.0.1:9419/{path}').read().decode())"
    )
    assert "cairnmq_queue_messages" in there.run(serving(f"venv/bin/{metrics.commands[0]}", fetch))


def read(there: Machine, watch: Stopwatch, page: str) -> None:
    """Execute a page, from the commands that activate the environment on."""
    activate, *installs = [
        one.text for one in section(page, None) if "bin/activate" in one.text or INSTALLS in one.text
    ]
    for install in installs:
        there.run(f"{activate}\n{install}", online=True, PIP_CACHE_DIR=HOST_PIP_CACHE)
        watch.lap(f"packages of {page}")
    there.run(f"{activate}\ncairnmq --version\ncd {CHECKOUT}\npython -c {shlex.quote(WALK)} {page}")
    watch.lap(page)


@on_machine
def test_make_run_needs_only_git_and_make_on_debian_12(tell: Tell) -> None:
    """The first block of README.md installs everything, prints it before, upgrades nothing, and starts a broker."""
    with machine("bookworm", tell) as there:
        watch = Stopwatch()
        first_message(there, install(there, watch))
        watch.lap("quick start (twice)")
        tell(f"Debian 12, make run: {watch}")


def walk_of_developer(there: Machine, installed: Stopwatch, start: str) -> Stopwatch:
    watch = Stopwatch(installed)
    first_message(there, start)
    watch.lap("quick start (twice)")
    read(there, watch, "tutorials/work-queue.md")
    return watch


def walk_of_operator(there: Machine, installed: Stopwatch, start: str) -> Stopwatch:
    watch = Stopwatch(installed)
    build, install = (one.text for one in section("how-to/install.md", "From a wheel")[:2])
    there.run(f"{build}{install}/opt/cairnmq/bin/cairnmq --version", online=True)
    watch.lap("wheel")
    login(there)
    watch.lap("users and TLS")
    operate(there, start)
    watch.lap("ctl and metrics")
    read(there, watch, "how-to/find-a-message.md")
    return watch


def walk_of_data_engineer(there: Machine, installed: Stopwatch) -> Stopwatch:
    watch = Stopwatch(installed)
    read(there, watch, "tutorials/spark.md")
    read(there, watch, "data-engineers.md")
    return watch


def packages(there: Machine) -> None:
    """Check the wheel and the source distribution that `make dist` builds."""
    there.run("venv/bin/pip install build && touch venv/ready", online=True)
    there.run("make dist VENV=venv", online=True)
    for kind in ("*.tar.gz", "*.whl"):
        install = f"venv/bin/pip install --force-reinstall --no-deps dist/{kind}"
        there.run(install, online=True)
        assert "PYPROJECT" not in there.run("cd / && /root/cairnmq/venv/bin/cairnmq --version")
        first_message(there, "venv/bin/cairnmq broker --store-dir ./data")


def every_extra(there: Machine) -> None:
    """Install and use the extras of the wheel, one after another."""
    for extra, use in EXTRAS.items():
        install = f'venv/bin/pip install "$(echo dist/*.whl)[{extra}]"'
        there.run(install, online=True, PIP_CACHE_DIR=HOST_PIP_CACHE)
        there.run(use)
    there.run("venv/bin/pip check")


@on_machine
def test_three_new_users_need_only_the_pages_on_debian_12(tell: Tell) -> None:
    with machine("bookworm", tell) as there:
        installed = Stopwatch()
        start = install(there, installed)
        tell(f"Debian 12, a backend developer: {walk_of_developer(there, installed, start)}")
        tell(f"Debian 12, an operator: {walk_of_operator(there, installed, start)}")
        tell(f"Debian 12, a data engineer: {walk_of_data_engineer(there, installed)}")
        watch = Stopwatch()
        packages(there)
        watch.lap("wheel and source distribution")
        every_extra(there)
        watch.lap("extras")
        tell(f"Debian 12: {watch}")


@on_machine
def test_readme_works_on_debian_13(tell: Tell) -> None:
    with machine("trixie", tell) as there:
        installed = Stopwatch()
        start = install_by_hand(there, installed)
        tell(f"Debian 13, a backend developer: {walk_of_developer(there, installed, start)}")
        tell(f"Debian 13, an operator: {walk_of_operator(there, installed, start)}")
        packages(there)


def test_every_extra_is_installed() -> None:
    assert set(EXTRAS) == set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
