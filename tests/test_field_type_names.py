"""A type of field decides in its own class: outside ``model/field_types`` hardly anything compares
the names of types."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from encrypted_records.model import field_types
from encrypted_records.model.field_types import TYPES
from encrypted_records.model.field_types.base import FieldType

SOURCES = Path(__file__).parents[1] / "src" / "encrypted_records"
#: Names of types in definitions, and of columns in readings of files, but for "text", a word for
#: much else.
NAMES = {kind.name for kind in TYPES} | {kind.reading for kind in TYPES if kind.reading} - {"text"}
#: The types themselves, as modules name them.
OBJECTS = {
    name
    for module in vars(field_types).values()
    for name, value in (vars(module).items() if hasattr(module, "__file__") else ())
    if isinstance(value, FieldType)
}
#: Files that compare such a name, and how often. It may only become less.
LEFT = {
    # Columns of files: a form of writing (a decimal mark, a format of days, two words) is no type
    # of field. One form serves several types, and one type is written in several forms.
    "ingest/reading/choices.py": 5,
    "ingest/reading/columns.py": 3,
    "ingest/reading/detect.py": 5,
    "ingest/reading/recipe.py": 7,
    "proxy/pages/imports.py": 1,
    # PostgreSQL sorts its uuids as their texts are sorted, which is no rule of other columns.
    "cli/input/postgresql.py": 1,
    # Tokens of the language of conditions, whose kinds are those of a lexer.
    "client/sdk/condition_language.py": 5,
    "proxy/pages/charts.py": 2,
    # The form of a control of pages.
    "proxy/pages/formatting.py": 1,
    # Arrow's type of a column: numbers that it sends as texts are not in the order of texts.
    "index/query/column_windows.py": 1,
    # The keywords that a text has beside those of all fields.
    "proxy/pages/schema_form.py": 1,
}

#: Code about the types of another language: PostgreSQL's in its protocol, Arrow's, JSON Schema's.
OTHER_TYPES = ("sql/wire/", "sql/pushdown.py", "http/openapi.py")


def named(node: ast.expr | ast.pattern) -> bool:
    """Whether one side of a comparison has a type, or the name of one."""
    if not isinstance(
        node,
        ast.Constant | ast.Name | ast.Attribute | ast.Tuple | ast.List | ast.Set | ast.pattern,
    ):
        return False
    return any(
        (isinstance(part, ast.Constant) and part.value in NAMES)
        or (isinstance(part, ast.Name) and part.id in OBJECTS)
        for part in ast.walk(node)
    )


def comparisons(source: str) -> Iterator[ast.AST]:
    for node in ast.walk(ast.parse(source)):
        sides: list[ast.expr | ast.pattern] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.match_case):
            sides = [node.pattern]
        if any(map(named, sides)):
            yield node


def test_names_of_types_are_compared_in_their_own_folder_alone() -> None:
    found: Counter[str] = Counter()
    for path in SOURCES.rglob("*.py"):
        place = path.relative_to(SOURCES).as_posix()
        if not place.startswith(("model/field_types/", *OTHER_TYPES)):
            found[place] += sum(1 for _ in comparisons(path.read_text()))
    assert +found == LEFT


def test_a_comparison_is_found_however_it_is_written() -> None:
    source = """
if kind == "date" or kind in ("uuid", "other") or spec.field_type is not TEXT: pass
if NUMBER.name != kind: pass
match kind:
    case "integer" | "number": pass
    case "no type": pass
name = "date"
"""
    assert sum(1 for _ in comparisons(source)) == 5
