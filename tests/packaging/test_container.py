"""The image of the Dockerfile, built and run by a container engine with the commands of docs/how-to/container.md."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Tell
from tests.harness.thorough import THOROUGH

from ..fresh_machine.machine import Unavailable
from ..readme_blocks import section
from .containers import Containers, reason_against_containers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not THOROUGH, reason="for thorough runs (CAIRN_THOROUGH=1)"),
]
PASSWORD = "one stone"
HEALTHY = """
end=$(($(date +%s) + 120))
until docker healthcheck run broker; do
    [ "$(date +%s)" -lt $end ] || { docker logs broker; exit 1; }
    sleep 0.2
done
"""
CONNECT = f"""
from proton import Message
from proton.utils import BlockingConnection
connection = BlockingConnection("127.0.0.1:5672", user="anna", password="{PASSWORD}", timeout=60)
"""
SEND = f'{CONNECT}connection.create_sender("orders").send(Message(body="kept", durable=True))\n'
STATE = """
id -u
grep -E "^(CapEff|NoNewPrivs)" /proc/1/status
tr "\\0" " " < /proc/1/cmdline; echo
touch /somewhere 2>&1 || true
"""


@pytest.fixture(scope="module")
def containers(tell: Tell) -> Iterator[Containers]:
    """A container engine with the image that the page builds."""
    reason = reason_against_containers()
    try:
        made = Containers() if reason is None else None
    except Unavailable as error:
        made, reason = None, str(error)
    if made is None:
        tell(f"the container image is not tested, because no container can be run here: {reason}")
        pytest.skip(f"no container can be run here: {reason}")
    with made:
        [build] = [line for line in page() if line.startswith("docker build ")]
        made.run(build, online=True)
        yield made


def page() -> list[str]:
    """The commands of the first section of the page."""
    [block] = section("how-to/container.md", "Build and run")
    return block.commands


def python(program: str) -> str:
    return f"docker exec broker /opt/cairnmq/bin/python3 -c {shlex.quote(program)}"


def test_container_of_the_page_is_healthy_unprivileged_and_stops_in_order(
    containers: Containers, tmp_path: Path
) -> None:
    directory, users, owner, start, version = page()[1:]
    containers.run(f"{directory}\nprintf '%s\\n' {shlex.quote(PASSWORD)} | {users}\n{owner}", tmp_path)
    said = containers.run(
        f"{start}\n{HEALTHY}\n{version}\n{python(SEND)}\ndocker exec broker sh -c {shlex.quote(STATE)}\n"
        "docker kill --signal HUP broker\n"
        "until docker logs broker 2>&1 | grep broker.reloaded; do sleep 0.2; done\n"
        "docker stop broker\ndocker inspect --format 'status {{.State.ExitCode}}' broker\ndocker logs broker",
        tmp_path,
    )
    assert "cairnmq, version " in said
    assert "10001\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n" in said
    assert "/opt/cairnmq/bin/cairnmq broker" in said  # the broker itself is the first process
    assert "touch: cannot touch '/somewhere': Read-only file system" in said
    assert "status 0\n" in said  # SIGTERM ended it in good order
    assert "broker.stopped" in said
