"""Tests that the documentation site has no broken links, and loads no files from other hosts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).parents[2]
_LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(https?:[^"'\s>]+)""")
_GENERATED = {Path("explanation/architecture.html"), Path("changelog.html"), Path("contributing.html")}


class Parser(HTMLParser):
    """A parser that collects the IDs, links and images of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if name := values.get("id"):
            self.ids.add(name)
        target = values.get("href") or values.get("src")
        if target and "://" not in target and not target.startswith(("mailto:", "data:", "javascript:")):
            self.targets.add(target)


def test_site_has_every_page(site: Path) -> None:
    sources = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    expected = {path.with_name("index.html") if path.name == "README.html" else path for path in sources}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert (expected | _GENERATED) - built == set()


def test_search_ranks_decisions_last(site: Path) -> None:
    docs = json.loads((site / "search/search_index.json").read_text())["docs"]
    decisions = [one.get("boost", 1) for one in docs if one["location"].startswith("decisions/")]
    others = [one.get("boost", 1) for one in docs if not one["location"].startswith("decisions/")]
    assert max(decisions) < min(others)


def test_links_show_titles_and_not_file_names(site: Path) -> None:
    named = re.compile(r"<a [^>]*>(?:<code>)?[\w/-]+\.md(?:</code>)?</a>")
    assert [(path.name, found) for path in site.rglob("*.html") for found in named.findall(path.read_text())] == []


def test_site_loads_nothing_from_other_hosts(site: Path) -> None:
    found = {(path.name, url) for path in site.rglob("*.html") for url in _LOADED.findall(path.read_text())}
    assert found == set()


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    pages = {path.resolve(): Parser(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            name, anchor = urldefrag(target)
            file = (path.parent / unquote(name)).resolve() if name else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or (anchor and file in pages and anchor not in pages[file].ids):
                broken.append(f"{path.relative_to(site.resolve())}: {target}")
    assert broken == []
