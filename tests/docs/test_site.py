"""The documentation site builds without a broken link, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 300
_FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(https?:[^"'\s>]+)""")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the site as `make docs` builds it."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return place


def test_site_has_every_page(site: Path) -> None:
    sources = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    expected = {path.with_name("index.html") if path.name == "README.html" else path for path in sources}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert expected - built == set()
    assert {Path("explanation/architecture.html"), Path("changelog.html"), Path("contributing.html")} <= built


def test_site_fetches_nothing_from_other_hosts(site: Path) -> None:
    found = {(path.name, url) for path in site.rglob("*.html") for url in _FETCHED.findall(path.read_text())}
    assert found == set()
