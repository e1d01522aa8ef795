"""Search the schemas of a dataset with one condition, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records.errors import Closed, ErsError, InvalidQuery, NotFound
from encrypted_records.model.ids import from_reference, to_text
from encrypted_records.model.queries import parse_query, refuse_unknown, whole_number
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import aside, is_long
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.dataset_schemas import DatasetSchema
from encrypted_records.proxy.search.search import SearchPage, answer

#: Schemas that one request asks.
MOST_SCHEMAS = 50
#: Records shown of each schema.
MOST_SHOWN, SHOWN = 100, 10


@dataclass(frozen=True, slots=True)
class SchemaAnswer:
    """The answer of one schema: ``page`` has its count and first records; or it lacks fields of the
    condition; or the search failed.
    """

    id: bytes
    name: str
    slug: str
    page: SearchPage | None = None
    missing: tuple[str, ...] = ()
    error: ErsError | None = None


@dataclass(frozen=True, slots=True)
class DatasetAnswer:
    """``after`` is the last schema that was asked, where there are more."""

    schemas: tuple[SchemaAnswer, ...]
    next_cursor: str | None


async def search_dataset(
    runner: QueryRunner, caller: Holder, dataset: bytes, body: Mapping[str, Any]
) -> DatasetAnswer:
    """
    Args:
        body: ``where`` and ``filters`` as of a search; ``limit``, of each schema; and ``cursor``,
            the ``next_cursor`` of the page before.

    Raises:
        NotFound: there is no such dataset, or not for this caller.
        InvalidQuery: no schema that has its fields takes the condition.
        ErsError: as :meth:`QueryRunner.ask`, where it is not of one schema.
    """
    refuse_unknown(body, {"where", "filters", "limit", "cursor"})
    limit = whole_number(body.get("limit", SHOWN), "/limit", 0, MOST_SHOWN)
    behind = b""
    if body.get("cursor") is not None:
        behind = from_reference(body["cursor"], "schemas", pointer="/cursor")
    there = await runner.datasets.of_dataset(caller, dataset)
    left = sorted(schema for schema in there if schema > behind)
    asked = left[:MOST_SCHEMAS]
    query = {name: body[name] for name in ("where", "filters") if name in body}
    query |= {"limit": limit, "count": True}
    answers = [await _ask(runner, caller, schema, there[schema], query) for schema in asked]
    found = tuple(answer for answer in answers if answer is not None)
    refused = [outcome.error for outcome in found if isinstance(outcome.error, InvalidQuery)]
    if refused and not any(outcome.page for outcome in found):
        raise refused[0]
    return DatasetAnswer(found, to_text(asked[-1]) if len(left) > len(asked) else None)


async def _ask(
    runner: QueryRunner,
    caller: Holder,
    schema: bytes,
    shown: DatasetSchema,
    query: Mapping[str, Any],
) -> SchemaAnswer | None:
    """The answer of a schema; None if the API no longer has it, and it is unsigned or its name was
    freed. A schema that the API hides is an error.
    """

    async def question(context: QueryContext) -> SchemaAnswer:
        names = dict.fromkeys(_names(query))
        missing = tuple(name for name in names if name not in context.definition.fields)
        if missing:
            return SchemaAnswer(schema, shown.name, shown.slug, missing=missing)
        if is_long(query):
            parsed = await aside(parse_query, query, context.definition)
        else:
            parsed = parse_query(query, context.definition)
        page = await answer(context, parsed)
        return SchemaAnswer(schema, shown.name, shown.slug, page)

    try:
        try:
            return await runner.ask(caller, schema, question)
        except NotFound:
            # Left out of the answer only if nobody has signed it, or its name was freed.
            await runner.datasets.require_gone(caller, shown)
            return None
    except (InvalidQuery, Closed) as error:
        if error.reason == "keyring_locked":
            raise
        return SchemaAnswer(schema, shown.name, shown.slug, error=error)


def _names(query: Mapping[str, Any]) -> Iterator[str]:
    """The fields that a condition names, as far as it is one."""
    parts = [query.get("where")]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            if isinstance(name := part.get("field"), str):
                yield name
            parts += [part[word] for word in ("and", "or", "not") if word in part]
    filters = query.get("filters")
    for condition in filters if isinstance(filters, list) else ():
        if isinstance(condition, dict) and isinstance(name := condition.get("label"), str):
            yield name
