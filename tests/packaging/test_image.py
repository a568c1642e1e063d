"""Tests of the files of the container image and of the compose project."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.harness.thorough import THOROUGH

from .conftest import PACKAGING, ROOT, run

thorough = pytest.mark.skipif(not THOROUGH, reason="for thorough runs (CAIRN_THOROUGH=1)")
DOCKERFILE = PACKAGING / "docker/Dockerfile"
COMPOSE = PACKAGING / "compose"


@thorough
def test_dockerfile_has_no_findings(tools: Path) -> None:
    assert run(tools / "hadolint", DOCKERFILE) == ""


@thorough
def test_compose_file_is_valid(tools: Path) -> None:
    run(tools / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE / "compose.yaml")


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """Return a directory with the /etc files that the compose file mounts for Prometheus and Grafana."""
    mounts = [mount.split(":") for mount in mounted_files()]
    for source, target, mode in mounts:
        assert mode == "ro"
        place = tmp_path / target.removeprefix("/etc/")
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (COMPOSE / source).is_dir() else shutil.copy)(COMPOSE / source, place)
    return tmp_path


def mounted_files() -> list[str]:
    """Return the mounts of files in the compose file."""
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    return [one for service in services.values() for one in service.get("volumes", ()) if one.startswith(".")]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="not installed: promtool (apt-get install prometheus)")
def test_prometheus_accepts_its_configuration_and_the_alert_rules(etc: Path) -> None:
    said = run("promtool", "check", "config", etc / "prometheus/prometheus.yml")
    alerts = yaml.safe_load((ROOT / "monitoring/prometheus/alerts.yml").read_text())["groups"]
    assert f"SUCCESS: {sum(len(group['rules']) for group in alerts)} rules found" in said
    assert "prometheus.yml is valid" in said


def test_alert_rules_select_the_job_of_the_compose_project(etc: Path) -> None:
    configuration = yaml.safe_load((etc / "prometheus/prometheus.yml").read_text())
    jobs = {one["job_name"] for one in configuration["scrape_configs"]}
    assert set(re.findall(r'job="([^"]+)"', (etc / "prometheus/alerts.yml").read_text())) == jobs


def test_grafana_finds_every_dashboard_and_its_data_source(etc: Path) -> None:
    provisioning = etc / "grafana/provisioning"
    [provider] = yaml.safe_load((provisioning / "dashboards/dashboards.yml").read_text())["providers"]
    [source] = yaml.safe_load((provisioning / "datasources/datasources.yml").read_text())["datasources"]
    found = list((etc / provider["options"]["path"].removeprefix("/etc/")).glob("*.json"))
    assert {path.name for path in found} == {path.name for path in (ROOT / "monitoring/grafana").glob("*.json")}
    documents = [json.loads(path.read_text()) for path in found]
    assert len({one["uid"] for one in documents}) == len(documents) == 3
    for document in documents:  # the variable's default is the default data source of its type
        [variable] = [one for one in document["templating"]["list"] if one["name"] == "datasource"]
        assert (variable["type"], variable["query"]) == ("datasource", source["type"])
    assert source["isDefault"]
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services


def test_every_layer_of_the_package_is_copied_into_the_image() -> None:
    """.dockerignore includes every package, as the image is built from the included files only."""
    copied = set(re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), re.M))
    packages = re.findall(r'^    "cairnmq\.(\w+)",$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert copied - {"LICENSE"} == set(packages)
