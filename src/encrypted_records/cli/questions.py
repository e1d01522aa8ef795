"""What is asked of records: the schema, the condition, the fields, and how results are shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from encrypted_records.cli.session import Session
from encrypted_records.cli.terminal import warn
from encrypted_records.client import expressions
from encrypted_records.errors import InvalidSetting


async def first(records: AsyncIterator[Any], most: int | None) -> AsyncIterator[Any]:
    """At most so many records; whether there are more is said on stderr."""
    count = 0
    async for one in records:
        if count == most:
            warn(f"there are more than {most}: --all shows all, --limit another number")
            return
        count += 1
        yield one


def _both(asked: dict[str, Any] | None, where: str | None) -> dict[str, Any] | None:
    """The ``where`` that an expression and JSON say together."""
    parts: list[Any] = [] if asked is None else [asked]
    if where is not None:
        from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

        parts.append(strict_json.loads(where))
    return {"and": parts} if len(parts) > 1 else parts[0] if parts else None


def named(text: str, known: list[str]) -> list[str]:
    """Field names, separated by commas; each may have a - before it where it is none's name."""
    if text in known:
        return [text]
    names = [part.strip() for part in text.split(",")]
    _check((name if name in known else name.removeprefix("-") for name in names), known)
    return names


def _check(names: Iterable[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidSetting(
                f"the schema has no field {name}", hint=f"its fields are {', '.join(known)}"
            )


async def question(
    session: Session,
    schema: str,
    dataset: str | None,
    expression: str | None,
    where: str | None,
) -> tuple[Mapping[str, Any], dict[str, Any] | None, list[str]]:
    """The schema that is asked, the condition, and the schema's fields."""
    asked = None if expression is None else expressions.parse(expression)
    condition = _both(asked, where)
    found = await session.names.schema(schema, dataset)
    known = list(found["schema"]["properties"])
    if asked is not None:
        _check(expressions.fields_of(asked), known)
    return found, condition, known


def measured(row: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """The cells of a group, or of all: its values, and each measure's result below its text."""
    results = [
        {name: one[name] for name in one if name not in ("op", "field")} for one in row["measures"]
    ]
    short = [one["value"] if set(one) == {"value"} else one for one in results]
    return {**row.get("group", {}), **dict(zip(texts, short, strict=True))}
