"""Parse a query; its semi-joins are answered first, each in its schema.

Each semi-join is a query by the same caller: the API decides whether the caller may read that
schema, and confirms the state that was used. The result is a set of values. A small set is compared
like the values of any comparison; for a large set, a whole column is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from encrypted_records.errors import BadInput, NotAllowed, NotFound
from encrypted_records.index.query.distinct_values import collect_values
from encrypted_records.index.query.key_sets import are_alike, compare_with
from encrypted_records.index.query.pages import joined_of
from encrypted_records.model import predicates
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.ids import from_reference
from encrypted_records.model.queries import Conditions
from encrypted_records.proxy.process import aside, is_long
from encrypted_records.proxy.search.context import DatasetSchema, JoinedSchema, QueryContext
from encrypted_records.proxy.search.upstream import QueryStats

T = TypeVar("T")

Read = Callable[[Mapping[str, Any], SchemaDefinition, predicates.Joins], T]


async def parse_body(read: Read[T], body: Mapping[str, Any], context: QueryContext) -> T:
    """Parse a query's body with ``read`` under the context's definition, its semi-joins answered.

    Raises:
        InvalidQuery: the query, or one of its semi-joins, is not valid.
        ErsError: as :meth:`QueryRunner.ask` for other schemas.
    """
    joins = predicates.Joins()

    async def parsed() -> T:
        if is_long(body):
            return await aside(read, body, context.definition, joins)
        return read(body, context.definition, joins)

    query = await parsed()
    if not joins.found:
        return query
    scope = _JoinScope(joined_of(body.get("cursor")))
    context.joined[:] = await _answer_all(context, joins, scope)
    return await parsed()


@dataclass(frozen=True, slots=True)
class _JoinScope:
    """The position of a query among the queries that contain it.

    ``stored`` is the number of considered rows of the schema for each semi-join, in the order of
    evaluation; ``done`` are the results of earlier semi-joins.
    """

    stored: tuple[int, ...]
    depth: int = 1
    done: tuple[JoinedSchema, ...] = ()

    def after(self, done: tuple[JoinedSchema, ...]) -> _JoinScope:
        return _JoinScope(self.stored, self.depth, done)

    def within(self) -> _JoinScope:
        return _JoinScope(self.stored, self.depth + 1, self.done)

    def pin(self, stored: int, pointer: str) -> int:
        """The number of rows that count in the schema of the current semi-join, which has
        ``stored``.

        Raises:
            InvalidQuery: the query has ``too_many`` semi-joins.
        """
        if len(self.done) >= predicates.MAX_JOINS:
            raise predicates.refuse_join(
                "too_many",
                f"the condition uses more than {predicates.MAX_JOINS} other schemas",
                pointer,
            )
        return self.stored[len(self.done)] if len(self.done) < len(self.stored) else stored


@dataclass(frozen=True, slots=True)
class _JoinAnswer:
    answer: predicates.Predicate
    done: tuple[JoinedSchema, ...]
    stats: QueryStats


async def _answer_all(
    context: QueryContext, joins: predicates.Joins, scope: _JoinScope
) -> tuple[JoinedSchema, ...]:
    """Answer all semi-joins of a condition; returns their results and those nested in them."""
    done = scope.done
    for join in joins.found:
        if scope.depth > predicates.MAX_JOIN_DEPTH:
            most = predicates.MAX_JOIN_DEPTH
            detail = f"selections from other schemas are nested more than {most} deep"
            raise predicates.refuse_join("too_deep", detail, f"{join.pointer}/of")
        found = await _answer(context, join, scope.after(done))
        done = found.done
        joins.answers[join.pointer] = found.answer
        context.stats.add(found.stats)
    return done


async def _answer(context: QueryContext, join: predicates.Join, scope: _JoinScope) -> _JoinAnswer:
    assert context.runner is not None
    at = f"{join.pointer}/of/schema"
    schema = await _find_schema(context, join.schema, at)
    organization = context.state.shown.organization

    async def question(other: QueryContext) -> _JoinAnswer:
        if other.state.shown.organization != organization:
            raise predicates.refuse_join(
                "other_organization", "it belongs to another organization", at
            )
        return await _ask(other, join, scope)

    with context.stats.stage("joins"):
        try:
            return await context.runner.ask(
                context.upstream.caller, schema, question, cold=context.fetcher.is_cold
            )
        except (NotFound, NotAllowed):
            # The whole query is refused: an empty result for the other schema would be wrong.
            detail = "there is no such schema, or none that you can read"
            raise predicates.refuse_join("unknown_schema", detail, at) from None


async def _find_schema(context: QueryContext, named: str, pointer: str) -> bytes:
    """The schema of a path, an id, or a name or slug in the dataset of the queried schema."""
    assert context.runner is not None
    try:
        return from_reference(
            named, "schemas", pointer=pointer, own_hosts=context.runner.own_origins
        )
    except BadInput:
        pass
    schemas = await context.runner.datasets.of_same_dataset(
        context.upstream.caller, context.state.id
    )
    return choose_schema(list(schemas.values()), named, pointer)


def choose_schema(schemas: Sequence[DatasetSchema], named: str, pointer: str) -> bytes:
    """The schema among those of a dataset that has this slug, or else this name.

    Signed names take precedence over the API's names.

    Raises:
        InvalidQuery: ``unknown_schema`` or ``ambiguous_schema``.
    """
    known = sorted(schemas, key=lambda schema: not schema.signed)
    fitting = [candidate for candidate in known if candidate.slug == named] or [
        candidate for candidate in known if candidate.name.casefold() == named.casefold()
    ]
    fitting = [candidate for candidate in fitting if candidate.signed == fitting[0].signed]
    if len(fitting) == 1:
        return fitting[0].id
    if fitting:
        detail = "several schemas have this name: use the slug or the id of one"
        raise predicates.refuse_join("ambiguous_schema", detail, pointer)
    names = ", ".join(sorted(schema.slug for schema in schemas)[:20])
    raise predicates.refuse_join(
        "unknown_schema", f"the dataset has no such schema; it has {names}", pointer
    )


async def _ask(other: QueryContext, join: predicates.Join, scope: _JoinScope) -> _JoinAnswer:
    """Answer a semi-join in its schema."""
    at = f"{join.pointer}/of"
    spec = _compared_field(join, other.definition, at)
    joins = predicates.Joins()
    where = _read_where(join, other.definition, joins)
    if joins.found:
        scope = scope.after(await _answer_all(other, joins, scope.within()))
        where = _read_where(join, other.definition, joins)
    pinned = scope.pin(other.snapshot.stored, at)
    condition = await other.condition(where)
    values = await other.run(collect_values(other.space, condition, spec, at, stored=pinned))
    answer = await aside(compare_with, join.spec, spec, values.keys, values.long)
    count = len(values.keys) + len(values.long)
    version = other.snapshot.version
    found = JoinedSchema(
        join.pointer, other.state.id, spec.name, version, pinned, values.rows, count
    )
    return _JoinAnswer(answer, (*scope.done, found), other.stats)


def _compared_field(join: predicates.Join, definition: SchemaDefinition, at: str) -> FieldSpec:
    """The field of the joined schema whose values are compared.

    Raises:
        InvalidQuery: there is no such field, or none of its values can equal one of the outer
            field.
    """
    spec = Conditions(definition).spec(join.name, f"{at}/field")
    if not are_alike(join.spec, spec):
        detail = (
            f"{join.spec.name} is {join.spec.field_type.name}, and {spec.name} is"
            f" {spec.field_type.name}: no value of one can equal a value of the other"
        )
        raise predicates.refuse_join("type", detail, f"{at}/field")
    return spec


def _read_where(
    join: predicates.Join, definition: SchemaDefinition, joins: predicates.Joins
) -> predicates.Predicate:
    if join.where is None:
        return predicates.Everything()
    where = Conditions(definition, joins).predicate(join.where, f"{join.pointer}/of/where", 1)
    return predicates.join_ranges(where)
