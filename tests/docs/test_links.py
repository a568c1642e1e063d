"""Tests of links and anchors of the documentation site by a strict build without the theme and the search.

Theme and search add no links between pages. `test_site.py` checks the complete site in thorough runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).parents[2]
BROKEN = "[page](none.md) [anchor](#none) [other](other.md#none)\n"


def built(place: Path, **more: Any) -> None:
    """Build the site at *place*, with warnings as errors; raise `Abort` if it fails."""
    (place / "theme").mkdir()
    (place / "theme" / "main.html").write_text("{{ page.content }}")
    theme: dict[str, Any] = {"name": None, "custom_dir": str(place / "theme"), "static_templates": []}
    config = load_config(
        str(ROOT / "mkdocs.yml"), site_dir=str(place / "site"), theme=theme, plugins=[], strict=True, **more
    )
    build(config)


def test_every_link_leads_somewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(BROKEN)
    (docs / "other.md").write_text("# Other\n")
    broken, complete = tmp_path / "broken", tmp_path / "whole"
    broken.mkdir()
    complete.mkdir()
    with pytest.raises(Abort, match="3 warnings"):
        built(broken, docs_dir=str(docs), nav=["index.md", "other.md"], not_in_nav="", hooks=[], extra_css=[])
    caplog.clear()
    built(complete)
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
    assert len(list((complete / "site").rglob("*.html"))) > 100
