"""Tests that run the integration tests of the go-amqp module against this broker.

`go mod download` fetches the module with its tests, which read the broker's address from AMQP_BROKER_ADDR.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.process import broker

MODULE = "github.com/Azure/go-amqp@v1.4.0"
TIMEOUT_S = 600
TESTS = (
    "IntegrationRoundTrip",
    "IntegrationRoundTrip_Buffered",
    "IntegrationReceiverModeSecond",
    "IntegrationSessionHandleMax",
    "IntegrationLinkName",
    "IntegrationClose",
    "MultipleSessionsOpenClose",
    "ConcurrentSessionsOpenClose",
    "ReceiverModeFirst",
    "SenderExactlyOnce",
    "MultipleSendersSharedSession",
    "DrainingLink",
)
"""The tests that need a broker, except TestReceivingLotsOfSettledMessages, which is a load test."""

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Compile the tests, and return the program and the directory in which it runs."""
    if shutil.which("go") is None:
        pytest.skip("there is no go: apt-get install golang-go")
    directory = tmp_path_factory.mktemp("go")
    command = ["go", "mod", "download", "-json", MODULE]
    found = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S)
    if found.returncode:
        pytest.skip(f"go can't download {MODULE}: {found.stdout}{found.stderr}")
    module = Path(json.loads(found.stdout)["Dir"])
    compiled = directory / "integration.test"
    command = ["go", "test", "-c", "-o", str(compiled), "."]
    made = subprocess.run(command, cwd=module, capture_output=True, text=True, timeout=TIMEOUT_S)
    if made.returncode:
        pytest.skip(f"{MODULE} can't be compiled: {made.stderr}")
    return compiled, module


def test_go_amqp_integration_tests_pass(program: tuple[Path, Path], tmp_path: Path) -> None:
    compiled, module = program
    with broker(tmp_path / "store") as running:
        chosen = "^Test(" + "|".join(TESTS) + ")$"
        done = subprocess.run(
            [str(compiled), "-test.run", chosen, "-test.v", "-test.count=1", f"-test.timeout={TIMEOUT_S}s"],
            cwd=module,
            env={**os.environ, "AMQP_BROKER_ADDR": f"amqp://127.0.0.1:{running.port}"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = [name for name in TESTS if f"--- PASS: Test{name} " in done.stdout]
    assert passed == list(TESTS)
