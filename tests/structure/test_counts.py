"""Tests that texts with a count use `base.texts.counted`, so that the noun agrees with the number (`1 message`)."""

from __future__ import annotations

import ast
import re

import pytest

from .modules import MODULES

LAYERS = ("cli", "console", "management", "recovery", "tools")
"""Layers with texts for users."""
PLURAL = re.compile(
    r" (?:more |older |free |empty |incomplete )?(?:messages|records|queues|exchanges|bindings|containers|blocks|holes|"
    r"commits|files|users|options|connections|consumers|rows|lines|transactions|kills|members|places|findings)\b(?!/)"
)


def uncounted(source: str) -> list[str]:
    """Return the parts of f-strings in *source* that are a variable number and a noun in the plural.

    Numbers in columns (`{count:>12}`), totals (`1 of 3 messages`) and constants are correct with a plural.
    """
    found = []
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        before = ""
        for value, noun in zip(text.values, [*text.values[1:], ast.Constant("")], strict=True):
            if isinstance(value, ast.Constant):
                before = str(value.value)
                continue
            assert isinstance(value, ast.FormattedValue)
            number, spec = ast.unparse(value.value), ast.unparse(value.format_spec) if value.format_spec else ""
            is_fixed = number.split(".")[-1].isupper() or ">" in spec or before.endswith(" of ")
            before = ""
            if isinstance(noun, ast.Constant) and (plural := PLURAL.match(str(noun.value))) and not is_fixed:
                found.append(f"{{{number}}}{plural[0]}")
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_counts_agree_with_their_nouns(layer: str) -> None:
    found = {
        module: texts
        for module, path in MODULES.items()
        if module.partition(".")[0] == layer and (texts := uncounted(path.read_text()))
    }
    assert not found, "use `counted` of base.texts"


def test_uncounted_noun_is_found() -> None:
    source = "f'{n} messages, {a.b} more queues, {MOST} rows, {n:>9} files, {done} of {all} lines, {size} B'"
    assert uncounted(source) == ["{n} messages", "{a.b} more queues"]
