"""Generator of the signatures on the reference page of the Python API.

A block of the language `pyi` has the dotted name of a public class or function as its title. `python -m
tests.docs.python_page` writes the contents of these blocks; the rest of the page is written by hand.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

from ..readme_blocks import DOCS

PAGE = DOCS / "reference" / "python.md"
WIDTH = 96
_BLOCK = re.compile(r'(?<=^```pyi title=")([\w.]+)"\n(.*?)(?=^```$)', re.M | re.S)
_LONGEST_DEFAULT = 60
_SHOWN = ("__len__", "__iter__", "__await__", "__enter__", "__exit__", "__call__")
"""The special methods that a block shows."""


class PublicClass(NamedTuple):
    """Properties of a public class that its source does not show."""

    internal: tuple[str, ...] = ()
    """Members with public names that belong to other modules of the project."""
    attributes: tuple[tuple[str, str], ...] = ()
    """The attributes that `__init__` assigns, with their types."""
    is_constructed: bool = False
    """True if programs call the class."""


CLASSES = {
    "cairnmq.store.Store": PublicClass(
        ("check", "check_own", "check_room", "ended", "now_us", "queue_of", "recorded"),
        (("inner", "OwnedStore"), ("lock", "threading.RLock")),
    ),
    "cairnmq.store.Queue": PublicClass(
        ("arrival", "check", "check_taken", "on_accept", "on_deletion", "on_end", "on_purge", "on_release", "store"),
        (("id", "int"), ("name", "str"), ("is_deleted", "bool")),
    ),
    "cairnmq.amqp.resumable_link.ResumableLink": PublicClass(
        attributes=(("unsettled", "dict[bytes, Described | None]"),)
    ),
    "cairnmq.store.Message": PublicClass(attributes=(("queue", "Queue"), ("id", "int"))),
    "cairnmq.store.UnitOfWork": PublicClass(("inner", "on_rollback")),
    "cairnmq.analytics.views.journal.Journal": PublicClass(
        ("altered", "batches", "doubtful_lsn_since", "log", "resolved"), (("queue_names", "dict[int, str]"),)
    ),
    "cairnmq.analytics.scan.selection.Selection": PublicClass(("chosen", "is_range", "ordered_ids", "overlaps")),
    "cairnmq.analytics.jobs.views.ViewsRequest": PublicClass(("need",)),
    "cairnmq.analytics.jobs.views.Views": PublicClass(
        ("asked", "forgiving", "gaps", "log", "many", "spark", "store", "whole_from"), is_constructed=True
    ),
    "cairnmq.recovery.simulated_store.SimulatedStore": PublicClass(
        attributes=(("files", "MemoryDirectory"), ("clock", "ManualClock"), ("wiring", "Wiring")), is_constructed=True
    ),
    "cairnmq.base.testing.PowerCut": PublicClass(attributes=(("pending", "list[Pending]"),)),
    "cairnmq.base.testing.MemoryDirectory": PublicClass(
        (
            "beside",
            "fingerprint",
            "leads_to",
            "listings",
            "lock",
            "made_of",
            "next_operation",
            "node",
            "refusal",
            "tell",
        ),
        (
            ("path", "str"),
            ("sector_bytes", "int"),
            ("left_bytes", "int"),
            ("on_operation", "Callable[[str], None] | None"),
        ),
        is_constructed=True,
    ),
    "cairnmq.base.testing.FaultyDirectory": PublicClass(
        ("begin",),
        (("path", "str"), ("inner", "Directory"), ("plan", "Plan | None"), ("calls", "list[DiskCall]")),
        is_constructed=True,
    ),
    "cairnmq.base.testing.ManualClock": PublicClass(attributes=(("now_s", "float"),), is_constructed=True),
    "cairnmq.store.conformance.StoreConformance": PublicClass(("subject",)),
    "cairnmq.base.errors.CairnError": PublicClass(
        attributes=(("place", "str"), ("reason", "str"), ("remedy", "str")), is_constructed=True
    ),
}
"""Classes that need more than the default."""


def found(title: str) -> Any:
    """Return the object with the dotted name *title*."""
    module, _, name = title.rpartition(".")
    return getattr(import_module(module), name)


def function(name: str, called: Callable[..., Any]) -> str:
    """Return the signature of a function or method; the parameters of a long one are on a separate line."""
    signature = inspect.signature(called)
    head, tail = f"def {name}", f" -> {_annotation(signature.return_annotation)}: ..."
    parts: list[str] = []
    kinds = [one.kind for one in signature.parameters.values()]
    for number, one in enumerate(signature.parameters.values()):
        if one.kind is one.KEYWORD_ONLY and one.kind not in kinds[:number] and one.VAR_POSITIONAL not in kinds:
            parts.append("*")
        parts.append(_parameter(one))
        if one.kind is one.POSITIONAL_ONLY and one.kind not in kinds[number + 1 :]:
            parts.append("/")
    line = f"{head}({', '.join(parts)}){tail}"
    if len(line) <= WIDTH - 4:
        return line
    packed = textwrap.fill(", ".join(part.replace(" ", "\0") for part in parts), WIDTH - 8, break_long_words=False)
    return f"{head}(\n{textwrap.indent(packed.replace(chr(0), ' '), '    ')}\n){tail}"


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    text = stars + one.name
    if one.annotation is not one.empty:
        text += f": {_annotation(one.annotation)}"
    if one.default is one.empty:
        return text
    return f"{text} = {_default(one.default)}" if one.annotation is not one.empty else f"{text}={_default(one.default)}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else str(inspect.formatannotation(annotation))


def _default(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value) if isinstance(value, Enum) else repr(value)
    return text if len(text) <= _LONGEST_DEFAULT and value is not ... else "..."


def members(title: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each public member of a class, in source order."""
    kind, table = found(title), CLASSES.get(title, PublicClass())
    for name, type in table.attributes:
        yield name, f"{name}: {type}"
    if table.is_constructed:
        yield "__init__", function("__init__", kind.__init__)
    for name, text in _own(kind):
        if name not in table.internal:
            yield name, text


def _own(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the members that the class body defines."""
    for node in _definition(kind).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield name, f"{name}: {ast.unparse(node.annotation)}{_field_default(kind, name)}"
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_"):
                yield name, f"{name} = {_default(_value(kind, name))}"
            case ast.FunctionDef(name=name) if name in _SHOWN or not name.startswith(("_", "test_")):
                member = inspect.getattr_static(kind, name)
                if isinstance(member, property | cached_property):
                    yield name, f"{name}: {ast.unparse(node.returns) if node.returns else 'Any'}  # read-only"
                else:
                    yield name, function(name, inspect.unwrap(member))


def _definition(kind: type[Any]) -> ast.ClassDef:
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return definition


def _value(kind: type[Any], name: str) -> object:
    value = inspect.getattr_static(kind, name)
    return getattr(value, "value", value)  # the value of an enumeration member


def _field_default(kind: type[Any], name: str) -> str:
    defaults = getattr(kind, "_field_defaults", kind.__dict__)
    return f" = {_default(defaults[name])}" if name in defaults else ""


def assigned(title: str) -> set[str]:
    """Return the public attributes that the `__init__` of a class assigns."""
    return {
        target.attr
        for method in _definition(found(title)).body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for target in ast.walk(method)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store) and not target.attr.startswith("_")
    }


def block(title: str) -> str:
    """Return the content of the block of a public class or function."""
    if not inspect.isclass(one := found(title)):
        decorator = "@contextmanager\n" if inspect.isgeneratorfunction(inspect.unwrap(one)) else ""
        return f"{decorator}{function(one.__name__, one)}\n"
    bases = ", ".join(ast.unparse(base) for base in _definition(one).bases)
    lines = [text for _, text in members(title)] or ["..."]
    return f"class {one.__name__}{f'({bases})' if bases else ''}:\n" + textwrap.indent("\n".join(lines), "    ") + "\n"


def blocks() -> dict[str, str]:
    """Return the content of each block of the page."""
    return dict(_BLOCK.findall(PAGE.read_text()))


def description(title: str) -> str:
    """Return the text from the block of *title* to the next block or heading."""
    _, _, after = PAGE.read_text().partition(f'```pyi title="{title}"\n')
    return re.split(r"^(?:#|```pyi)", after.partition("\n```\n")[2], maxsplit=1, flags=re.M)[0]


if __name__ == "__main__":
    PAGE.write_text(_BLOCK.sub(lambda match: f'{match[1]}"\n{block(match[1])}', PAGE.read_text()))
