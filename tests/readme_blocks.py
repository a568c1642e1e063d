"""Access to the code blocks of README.md and of the pages in docs, for tests that execute them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"))
_BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"\n]+)\")?\n(.*?)^```", re.M | re.S)
_HEADING = re.compile(r"^#+ (.+)$", re.M)


class Block(NamedTuple):
    """A fenced code block."""

    page: str
    """Path relative to docs, such as "tutorials/topics.md", or README.md."""
    section: str
    """Heading above the block."""
    language: str
    title: str
    """Name of a file or of a terminal such as "Terminal 1"; often empty."""
    text: str

    @property
    def commands(self) -> list[str]:
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in order; lines in blocks are not headings."""
    text = page.read_text()
    name = str(page.relative_to(DOCS if DOCS in page.parents else ROOT))
    found = []
    heading, end = "", 0
    for match in _BLOCK.finditer(text):
        heading = [heading, *_HEADING.findall(text[end : match.start()])][-1]
        end = match.end()
        found.append(Block(name, heading, match[1], match[2] or "", match[3]))
    return found


def section(page: str, heading: str | None, language: str = "sh") -> list[Block]:
    """Return the blocks of a section or of a complete page; *page* is README.md or a path relative to docs."""
    path = ROOT / page if page == "README.md" else DOCS / page
    found = [one for one in blocks_of(path) if one.language == language and heading in (None, one.section)]
    assert found, f"{page} has no {language} block in section {heading!r}"
    return found


def readme(heading: str, language: str = "sh") -> list[Block]:
    """Return the blocks of a section of README.md."""
    return section("README.md", heading, language)
