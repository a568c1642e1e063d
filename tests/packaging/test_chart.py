"""Tests of the Helm chart, rendered by Helm's engine and validated against the Kubernetes schemas."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import make
from tests.harness.thorough import THOROUGH

from .conftest import PACKAGING, run

pytestmark = pytest.mark.skipif(not THOROUGH, reason="for thorough runs (CAIRN_THOROUGH=1)")
CHART = PACKAGING / "helm/cairnmq"
VERSIONS = ("1.30", "1.37")
"""The oldest and the newest version of Kubernetes whose schemas are compared."""
RENDER = """
import json, sys
import helm_python as helm
chart, values = sys.argv[1], json.loads(sys.argv[2])
try:
    report = helm.lint(chart, values, strict=True)
    rendered = helm.Chart.load(chart).render(values, name="test", namespace="messages")
except helm.HelmError as error:
    sys.exit(str(error))
problems = [one for one in report["messages"] if one["severity"] >= 2] + report["errors"]
json.dump({"problems": problems, "rendered": rendered}, sys.stdout)
"""
USERS = {"auth": {"existingSecret": "users"}}
EVERYTHING = {
    **USERS,
    "tls": {"existingSecret": "certificate", "only": True},
    "rules": "[[rules]]\nwho = ['anna']\nmay = ['*']\n",
    "config": {"memory-limit": "1GiB", "auto-create": ["orders.*", "events.*"], "max-connections": 100},
    "persistence": {"storageClass": "fast", "size": "100Gi"},
    "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "orders"}}}],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 5671}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podAnnotations": {"example.com/owner": "orders"},
    "nodeSelector": {"disk": "nvme"},
    "tolerations": [{"key": "brokers", "operator": "Exists", "effect": "NoSchedule"}],
}
LEAST = {
    "auth": {"anonymous": True}, "persistence": {"enabled": False}, "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False}, "config": {},
}  # fmt: skip


def render(tools: Path, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the objects that Helm renders by kind; the headless service has the kind HeadlessService."""
    made = json.loads(run(tools / "python", "-c", RENDER, CHART, json.dumps(values)))
    assert made["problems"] == []
    texts = [text for name, text in made["rendered"].items() if name.endswith(".yaml")]
    documents = [one for text in texts for one in yaml.safe_load_all(text) if one]
    headless = {"Service": "HeadlessService"}
    kinds = {
        headless.get(one["kind"], one["kind"]) if one["metadata"]["name"].endswith("-headless") else one["kind"]: one
        for one in documents
    }
    assert len(kinds) == len(documents)
    return kinds


@pytest.mark.parametrize("values", [USERS, EVERYTHING, LEAST], ids=["users", "everything", "least"])
def test_objects_are_valid(values: dict[str, Any], tools: Path, tmp_path: Path) -> None:
    kinds = render(tools, values)
    monitor = kinds.pop("ServiceMonitor", None)
    assert (monitor is not None) == (values is EVERYTHING)
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(kinds.values()))
    for version in VERSIONS if values is EVERYTHING else VERSIONS[-1:]:
        said = run(tools / "kubernetes-validate", "--strict", "-k", version, tmp_path / "objects.yaml")
        assert said.count(" passed for ") == len(kinds), said


@pytest.mark.parametrize("values", [USERS, EVERYTHING, LEAST], ids=["users", "everything", "least"])
def test_broker_accepts_the_configuration(values: dict[str, Any], tools: Path, tmp_path: Path) -> None:
    data = render(tools, values)["ConfigMap"]["data"]
    mounted = tmp_path / "etc/cairnmq"
    for name in ("users", "tls", "config"):
        (mounted / name).mkdir(parents=True)
    users.change(str(mounted / "users/users"), lambda accounts: accounts.update(anna=make("one stone")))
    certificate = trustme.CA().issue_cert("broker.example.org")
    certificate.cert_chain_pems[0].write_to_path(str(mounted / "tls/tls.crt"))
    certificate.private_key_pem.write_to_path(str(mounted / "tls/tls.key"))
    (mounted / "config/rules.toml").write_text(data.get("rules.toml", ""))
    text = re.sub(r'"/(etc|var)/', f'"{tmp_path}/\\1/', data["cairnmq.toml"])
    (tmp_path / "cairnmq.toml").write_text(text)
    said = run(Path(sys.executable).with_name("cairnmq"), "config", "check", tmp_path / "cairnmq.toml")
    assert "OK" in said


def test_objects_refer_to_each_other(tools: Path) -> None:
    kinds = render(tools, EVERYTHING)
    pod = kinds["StatefulSet"]["spec"]["template"]
    [container] = pod["spec"]["containers"]
    labels, ports = pod["metadata"]["labels"], {one["name"] for one in container["ports"]}
    headless, monitor = kinds["HeadlessService"], kinds["ServiceMonitor"]["spec"]
    for selector in (
        kinds["Service"]["spec"]["selector"],
        headless["spec"]["selector"],
        kinds["StatefulSet"]["spec"]["selector"]["matchLabels"],
        kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    assert monitor["selector"]["matchLabels"].items() <= headless["metadata"]["labels"].items()
    assert [one["port"] for one in monitor["endpoints"]] == [one["name"] for one in headless["spec"]["ports"]]
    allowed = [one["port"] for rule in kinds["NetworkPolicy"]["spec"]["ingress"] for one in rule["ports"]]
    assert set(allowed) == ports == {"amqps", "metrics"}
    for values in (USERS, EVERYTHING):  # A12
        assert all(rule["from"] for rule in render(tools, values)["NetworkPolicy"]["spec"]["ingress"])
    nobody = render(tools, {**USERS, "networkPolicy": {"monitoring": []}})["NetworkPolicy"]["spec"]["ingress"]
    assert [one["port"] for rule in nobody for one in rule["ports"]] == ["amqp"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [one["path"] for one in probes] == ["/health", "/health", "/ready"]
    mounted = {one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"] for one in pod["spec"]["volumes"]}
    claims = {one["metadata"]["name"] for one in kinds["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    assert mounted == volumes | claims


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "set auth.existingSecret"),
        ({**USERS, "tls": {"only": True}}, "tls.only needs tls.existingSecret"),
        ({**USERS, "persistance": {}}, "persistance"),
        ({**USERS, "persistence": {"size": "20GB"}}, "/persistence/size"),
    ],
)
def test_bad_values_are_refused(values: dict[str, Any], reason: str, tools: Path) -> None:
    command = [str(tools / "python"), "-c", RENDER, str(CHART), json.dumps(values)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert reason in done.stderr


def test_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = re.search(r'^version = "(.*)"', (PACKAGING.parent / "pyproject.toml").read_text(), re.M)
    assert project
    assert chart["appVersion"] == project[1]
