"""The files of the container image and of the compose project."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

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


@pytest.mark.skipif(shutil.which("promtool") is None, reason="not installed: promtool (apt-get install prometheus)")
def test_prometheus_accepts_its_configuration() -> None:
    assert "SUCCESS" in run("promtool", "check", "config", COMPOSE / "prometheus.yml")


def test_files_that_the_compose_file_mounts_exist() -> None:
    mounted = re.findall(r"- (\./[^:]+):", (COMPOSE / "compose.yaml").read_text())
    assert len(mounted) == 2
    assert [name for name in mounted if not (COMPOSE / name).exists()] == []


def test_every_layer_of_the_package_is_copied_into_the_image() -> None:
    """The image is built from the files that .dockerignore lets through."""
    copied = set(re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), re.M))
    packages = re.findall(r'^    "cairnmq\.(\w+)",$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert copied - {"LICENSE"} == set(packages)
