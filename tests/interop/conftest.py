"""Fixtures: clients in other languages, and a broker for them.

`make test` runs the clients that npm must download if npm is installed; pytest runs them with `-m interop`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.harness.clients.peers import Peer
from tests.harness.process import BrokerProcess, broker

from .programs import HERE, TIMEOUT_S, Program, compiled

_STRICT = ("-Wall", "-Wextra", "-Werror")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "interop" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("interop")]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def cpp(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Compile the C++ client, and return its command and environment."""
    return [compiled(HERE / "client.cpp", tmp_path_factory.mktemp("cpp") / "client", *_STRICT)], {}


@pytest.fixture(scope="session")
def cpp_failover(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Compile a C++ client with failover, and return its command and environment."""
    return [compiled(HERE / "failover.cpp", tmp_path_factory.mktemp("cpp") / "failover", *_STRICT)], {}


@pytest.fixture(scope="session")
def rhea(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Return the rhea client; rhea is installed for this run only."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("there is no npm or node: apt-get install nodejs npm")
    place = tmp_path_factory.mktemp("rhea")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), "rhea@3.0.5", "rhea-promise@3.0.3"]
    try:
        installed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm can't fetch rhea within {TIMEOUT_S} s")
    if installed.returncode != 0:
        pytest.skip(f"npm can't fetch rhea: {installed.stderr.strip()[-200:]}")
    return [node, str(HERE / "client.js")], {"NODE_PATH": str(place / "node_modules")}


@pytest.fixture(params=["cpp", pytest.param("rhea", marks=pytest.mark.interop)])
def program(request: pytest.FixtureRequest) -> Program:
    chosen: Program = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("interop") / "store") as started:
        yield started
        assert started.stop() == 0


@pytest.fixture
def peer(running: BrokerProcess) -> Iterator[Peer]:
    connected = Peer(running.port)
    yield connected
    connected.close()


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """Return the address of the test's own queue."""
    return str(request.node.name)
