"""Tests of the container image and the compose project with the commands of docs/how-to/container.md.

The test does not pull other images. The image of Prometheus is built from Debian's package under the name that the
compose file uses; Grafana, which is not in Debian, is left out.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conftest import Tell
from tests.harness.thorough import THOROUGH

from ..fresh_machine.machine import Unavailable
from ..readme_blocks import section
from .conftest import PACKAGING, ROOT
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
    """Yield a container engine with the image that the page builds; skip the test if none can run."""
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
    """Return the commands of the first section of the page."""
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
    assert "status 0\n" in said  # a clean stop by SIGTERM
    assert "broker.stopped" in said


NAMES = Path("/usr/lib/cni/dnsname")
"""Plugin by which containers of a network resolve each other's names."""
PROMETHEUS = """ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends prometheus && mkdir /prometheus
WORKDIR /prometheus
ENTRYPOINT ["prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
"""
CLIENT = """
import json
import time
from urllib.parse import urlencode
from urllib.request import urlopen
from proton import Message
from proton.utils import BlockingConnection

def ask(path, **query):
    with urlopen(f"http://127.0.0.1:9090/api/v1/{path}?{urlencode(query)}", timeout=30) as answer:
        return json.load(answer)["data"]

def until(ready):
    until_s = time.monotonic() + 120
    while True:
        try:
            if found := ready():
                return found
        except (OSError, LookupError) as error:
            found = error
        assert time.monotonic() < until_s, found
        time.sleep(0.2)

until(lambda: urlopen("http://127.0.0.1:8161/api/v1/openapi.json", timeout=30).status == 200)
connection = BlockingConnection("127.0.0.1:5672", timeout=60)
sender = connection.create_sender("orders")
for _ in range(3):
    sender.send(Message(body="kept", durable=True))
connection.close()
COUNT = 'max by (job) (cairnmq_queue_messages{queue="orders"}) == 3'
count = until(lambda: ask("query", query=COUNT)["result"])[0]
[target] = ask("targets")["activeTargets"]
rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
print(json.dumps({
    "target": target["scrapeUrl"], "health": target["health"], "messages": count["value"][1],
    "job": count["metric"]["job"], "rules": [rule["name"] for rule in rules],
}))
"""


def test_compose_project_runs_and_prometheus_scrapes_its_broker(
    containers: Containers, tools: Path, tmp_path: Path, tell: Tell
) -> None:
    if not NAMES.exists():
        pytest.skip("not installed: golang-github-containernetworking-plugin-dnsname")
    services = yaml.safe_load((PACKAGING / "compose/compose.yaml").read_text())["services"]
    (tmp_path / "Dockerfile").write_text(PROMETHEUS)
    image = f"docker.io/{services['prometheus']['image']}"
    containers.run(f"docker build --tag {image} .", tmp_path, online=True)
    [block] = section("how-to/container.md", "With Prometheus and Grafana")
    [up] = block.commands
    project = up.partition(" up ")[0]
    kept = [name for name in services if name != "grafana"]
    said = containers.run(
        f"{up} {shlex.join(kept)}\n{sys.executable} -c {shlex.quote(CLIENT)}\n"
        f"docker exec cairnmq_broker_1 sh -c 'touch /somewhere 2>&1 || true'\n{project} down --volumes",
        ROOT, programs=tools,
    )  # fmt: skip
    tell("the compose project is tested without Grafana, whose image can't be made here")
    [found] = [json.loads(line) for line in said.splitlines() if line.startswith('{"target"')]
    assert found["target"] == "http://broker:9419/metrics"
    assert (found["health"], found["messages"], found["job"]) == ("up", "3", "cairnmq")
    alerts = yaml.safe_load((ROOT / "monitoring/prometheus/alerts.yml").read_text())["groups"]
    assert found["rules"] == [rule["alert"] for group in alerts for rule in group["rules"]]
    assert "Read-only file system" in said
