"""Tests that pages and docstrings are in standard technical English, without patterns that the style guide forbids.

`python -m tests.test_language [FILE ...]` prints the problems of pages and Python files. `python -m tests.test_language
--counts` counts the problems of docstrings by rule and folder.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from .structure.modules import MODULES

ROOT = Path(__file__).parents[1]
_PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = [str(page.relative_to(ROOT)) for page in _PAGES]
CODE = sorted(str(path.relative_to(ROOT)) for path in MODULES.values())
"""The Python files of the product."""
WIDTH = 100
MOST_WORDS = 40
MEDIAN_WORDS = 20
FORBIDDEN = {
    "software does not talk": r"\b(?:is|are|was|were|be|been) told\b|\b(?:tells|says?|hears?|heard|believed)\b",
    "say acquire, dispatch, requeue or reclaim": (
        r"\bhand(?:s|ed|ing)? (?:out|back)\b|\bgiv(?:es?|en|ing) back\b|\blets? go\b|\btakes? back\b"
    ),
    "name the end state": (
        r"\b(?:is|are|was|were) gone\b|\bthere is none\b|\bstands? in\b|\b(?:it|that|which|who|he) is there\b"
    ),
    "name the subject": (
        r"(?:^|[.:;!] )(?:What|Whoever|Whatever|Who)\b(?![^.!?]*\?)|\bwho (?:is|are|has|comes|goes|sends|takes)\b"
    ),
    "say yields": r"\bgives? way\b",
    "use the glossary": r"\bnewcomers?\b|\bbrought up to date\b|\bset aside\b|\bthe house\b|\bnobody's\b",
    "a heading is a noun or an imperative": r"^(?:What|Who|How) [^?]*$",
}
TOO_LONG = f"more than {MOST_WORDS} words"
REPEATED = "the docstring of another object"
STANDS_ALONE = "the first sentence stands alone"
CODE_ONLY = {
    "name the actor or use the passive": r"\b[Nn]obody\b|\b[Ss]omebody\b|\b[Ww]hoever\b|\b[Ee]verybody\b",
    "write plain English": r"\bjust now\b|\bgo(?:es)? on\b|\bbegin anew\b|\bput back\b|\bwhat is wrong\b",
    "say removed, reported or distinguish": r"\bno claim\b|\bgone\b|\btold\b|\btells?\b",
}
"""Rules for docstrings and for texts of errors, logs, help and metrics, in addition to those of pages."""
MESSAGES = {"say invalid or not a": r"\b(?:it|that|which|X) is no (?!longer)\w|\bmeans nothing\b"}
"""Rules for texts of errors, logs, help and metrics."""
ELLIPTIC = re.compile(
    r"(?:The same|One of|As|It|Its|It's|He|They|Their|Of|What|Who|Whose|Whom|Which|Whether|Where|How|Why)\b"
)
"""First words of docstrings that depend on their context."""
_FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$|<!--.*?-->", re.M | re.S)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)\s]*\)")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')*_]* +(?=[A-Z\"'(*_`])")
_BLOCK = re.compile(r"::\n\n(?: +[^\n]*\n|\n)+(?=\S|\Z)|^(?: *>>>|    )[^\n]*$", re.M)
_ROW = re.compile(r"^(?! *[*|]).*[^\s.!?] {2,}\S.*$", re.M)
_ITEM = re.compile(r"^\s*(?:[*+-]|\d+\.) +")


def prose(text: str) -> tuple[list[str], list[str], list[str]]:
    """Return the headings, paragraphs and table cells of a page without code and link targets."""
    text = _LINK.sub(r"\1", _CODE.sub("X", _FENCE.sub("", text)))
    headings: list[str] = []
    paragraphs: list[str] = []
    cells: list[str] = []
    is_open = False
    for line in text.splitlines():
        if line.startswith("#"):
            headings.append(line.lstrip("# "))
        elif line.lstrip().startswith("|"):
            cells += [cell.strip() for cell in line.strip().strip("|").split("|") if cell.strip(" -:")]
        elif line.strip() and is_open and not _ITEM.match(line):
            paragraphs[-1] += f" {line.strip()}"
            continue
        elif line.strip():
            paragraphs.append(_ITEM.sub("", line).strip())
            is_open = True
            continue
        is_open = False
    return headings, paragraphs, cells


def problems(text: str) -> list[str]:
    """Return all violations of the rules in a page."""
    headings, paragraphs, cells = prose(text)
    sentences = [sentence for paragraph in paragraphs for sentence in _SENTENCE.split(paragraph)]
    lengths = [len(sentence.split()) for sentence in sentences]
    cells = [sentence for cell in cells for sentence in _SENTENCE.split(cell)]
    found = [f"{len(one.split())} words: {one}" for one in (*sentences, *cells) if len(one.split()) > MOST_WORDS]
    if len(lengths) > 5 and median(lengths) >= MEDIAN_WORDS:
        found.append(f"the median sentence has {median(lengths)} words")
    for rule, pattern in FORBIDDEN.items():
        texts = headings if rule.startswith("a heading") else (*headings, *sentences, *cells)
        found += [f"{rule}: {one}" for one in texts if re.search(pattern, one)]
    lines = _FENCE.sub("", text).splitlines()
    found += [
        f"{len(line)} characters: {line}"
        for line in lines
        if len(line) > WIDTH and not line.lstrip().startswith("|") and " " in line[:WIDTH].strip()
    ]
    return found


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring of a Python file, also those of attributes."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(value))):
                    yield statement.lineno, inspect.cleandoc(value)


def sentences_of(docstring: str) -> list[str]:
    """Return the sentences and the cells of tables of a docstring. Code and tables of formats are left out."""
    text = _ROW.sub(lambda row: f"| {re.sub(' {2,}', ' | ', row[0].strip())} |", _BLOCK.sub("", docstring))
    headings, paragraphs, cells = prose(text)
    return [one for text in (*headings, *paragraphs, *cells) for one in _SENTENCE.split(text)]


def messages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string of several words in a Python file, except docstrings.

    These are the texts of errors, log lines, help and metrics. X replaces values in them.
    """
    pending: list[ast.AST] = [ast.parse(text)]
    while pending:
        node = pending.pop()
        match node:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Constant(value=str(value)) if re.search(r"[a-z] ", value):
                yield node.lineno, value
            case ast.JoinedStr(values=parts):
                yield node.lineno, "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in parts)
                pending += [one for one in parts if not isinstance(one, ast.Constant)]
                continue
        pending += ast.iter_child_nodes(node)


def message_problems(message: str) -> list[tuple[str, str]]:
    """Return the rules that a text of an error, a log line, help or a metric violates."""
    rules = [*FORBIDDEN.items(), *CODE_ONLY.items(), *MESSAGES.items()]
    return [
        (rule, message) for rule, pattern in rules
        if not rule.startswith("a heading") and re.search(pattern, message)
    ]  # fmt: skip


def docstring_problems(docstring: str) -> list[tuple[str, str]]:
    """Return the rules that a docstring violates, each with the sentence."""
    sentences = sentences_of(docstring)
    found = [(TOO_LONG, one) for one in sentences if len(one.split()) > MOST_WORDS]
    for rule, pattern in (*FORBIDDEN.items(), *CODE_ONLY.items()):
        if not rule.startswith("a heading"):
            found += [(rule, one) for one in sentences if re.search(pattern, one)]
    if ELLIPTIC.match(docstring):
        found.append((STANDS_ALONE, docstring.partition("\n")[0]))
    return found


def code_problems() -> dict[str, list[tuple[int, str, str]]]:
    """Return the problems of all docstrings of the product by file: line, rule, sentence."""
    found: dict[str, list[tuple[int, str, str]]] = {name: [] for name in CODE}
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name in CODE:
        for line, docstring in docstrings((ROOT / name).read_text()):
            places[docstring].append((name, line))
            found[name] += [(line, rule, sentence) for rule, sentence in docstring_problems(docstring)]
    for docstring, where in places.items():
        if len(where) > 1:
            for name, line in where:
                found[name].append((line, REPEATED, docstring.partition("\n")[0]))
    return {name: sorted(each) for name, each in found.items()}


@pytest.mark.parametrize("page", PAGES)
def test_page_is_in_standard_english(page: str) -> None:
    assert problems((ROOT / page).read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "The sender is told so.", "A message that is gone.", "Who is silent is closed.", "## What it takes", "x " * 101,
        "A newcomer.", f"{'word ' * 41}.", "| a | The queue hands out messages. |",
    ],
)  # fmt: skip
def test_rules_find_what_they_forbid(text: str) -> None:
    assert problems(text)


@pytest.fixture(scope="module")
def problems_of_code() -> dict[str, list[tuple[int, str, str]]]:
    return code_problems()


def test_docstrings_are_in_standard_english(problems_of_code: dict[str, list[tuple[int, str, str]]]) -> None:
    found = [
        f"{name}:{line}: {rule}: {sentence}" for name, each in problems_of_code.items() for line, rule, sentence in each
    ]
    assert found == []


def test_messages_are_in_standard_english() -> None:
    found = [
        f"{name}:{line}: {rule}: {text}"
        for name in CODE
        for line, message in messages((ROOT / name).read_text())
        for rule, text in message_problems(message)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ('log.error("the queue %s is gone", name)', "name the end state"),
        ('raise CairnError(f"the port {port}", f"{port!r} is no number")', "say invalid or not a"),
        ('option("--ca", help="What signs the certificate.")', "name the subject"),
    ],
)
def test_rules_find_messages(code: str, rule: str) -> None:
    assert rule in [each for _, text in messages(code) for each, _ in message_problems(text)]


@pytest.mark.parametrize(
    ("docstring", "rule"),
    [
        ("The sender is told so.", "software does not talk"),
        ("Return the message.\n\nWhoever reads it, closes it.", "name the subject"),
        ("As `close`, for links.", STANDS_ALONE),
        ("Of the file.", STANDS_ALONE),
        (f"Return {'word ' * 40}.", TOO_LONG),
    ],
)
def test_rules_find_docstrings(docstring: str, rule: str) -> None:
    assert rule in [each for each, _ in docstring_problems(docstring)]


def test_docstrings_of_attributes_are_read() -> None:
    assert list(docstrings('"""M."""\nclass A:\n    b: int\n    """C."""\n')) == [(1, "M."), (4, "C.")]


def print_counts() -> None:
    """Print the number of problems by folder and rule."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, each in code_problems().items():
        counts[name.partition("/")[0]].update(rule for _, rule, _ in each)
    for folder, rules in sorted(counts.items()):
        print(f"{folder}: {', '.join(f'{rule} {count}' for rule, count in sorted(rules.items())) or 'clean'}")
    total = sum(counts.values(), Counter())
    print(f"all: {', '.join(f'{rule} {count}' for rule, count in sorted(total.items()))}")


def main(names: list[str]) -> None:
    if names == ["--counts"]:
        print_counts()
        return
    of_code = code_problems()
    for name in names or PAGES:
        for line, rule, sentence in of_code.get(name, ()):
            print(f"{name}:{line}: {rule}: {sentence[:180]}")
        for problem in problems((ROOT / name).read_text()) if name.endswith(".md") else ():
            print(f"{name}: {problem[:180]}")


if __name__ == "__main__":
    main(sys.argv[1:])
