"""Change the definition of a schema that has records: by a commit, which its readers verify.

The API shows a definition, but its word for it does not count (docs/SPEC.md, section 7.4). So a
definition that a caller sends to the API is committed here before it is sent on. A stricter rule is
compared with the stored records, and its commit is refused if a record came in between.

The index mostly decides whether stored records keep such a rule. A column has all stored values:
the least, the greatest, absent and distinct values need no record. Strings are indexed in NFC and
shortened, so if the index does not know the spelling of a string, the opened record decides. Equal
values have equal index keys, in all segments and under all definitions of a log, so records are
opened only to find out what their values are.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.crypto import values
from encrypted_records.errors import Conflict, Flaw, InvalidQuery, PreconditionFailed
from encrypted_records.index.query.asking import bring_columns
from encrypted_records.index.query.candidates import BATCH, Candidates
from encrypted_records.index.query.distinct_values import GlobalDictionary, build_global_dictionary
from encrypted_records.model.definition import (
    FieldSpec,
    SchemaDefinition,
    Value,
    with_ids_for_types,
)
from encrypted_records.model.definition_changes import (
    Cost,
    DefinitionChange,
    convert,
    find_added_sets,
    list_changes,
    refuse_changes,
    refuse_reserved,
)
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types.base import KeyKind, ValueRefused
from encrypted_records.model.predicates import Everything
from encrypted_records.model.queries import MAX_COMPARISONS
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside, by_size
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.write.committer import ATTEMPTS, LOST_RACES, Committer

log = logging.getLogger(__name__)


#: Maximum number of unfit values that the search for their records names.
MOST_NAMED = 100
#: The ASCII characters that are the NFC of others, too: only opened records tell which was sent.
AMBIGUOUS = frozenset("K;`")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle to a change: the number of records, and a condition that finds them under the
    current definition (with more than ``MOST_NAMED`` values, some of them); None finds all.
    """

    change: DefinitionChange
    records: int
    where: dict[str, Any] | None


async def find_obstacles(
    context: QueryContext,
    new: SchemaDefinition,
    changes: Sequence[DefinitionChange],
    dropped: Collection[str] = (),
) -> list[Obstacle]:
    """The records that break the demands of ``changes``, one entry per field and demand.

    Args:
        dropped: names of fields whose values may be lost.

    Raises:
        ErsError: as :meth:`QueryContext.match_rows`.
    """
    demands = [
        change
        for change in changes
        if change.cost is Cost.PROOF or change.code == "binding_changed"
    ]
    lost = [
        change
        for change in changes
        if change.code == "field_removed" and change.field not in dropped
    ]
    present = context.snapshot.definition
    sets = find_added_sets(present, new)
    demanded = {demand.field for demand in demands}.union(*sets)
    names = {
        name: present.by_id[spec.id].name
        for name, spec in ((name, new.fields[name]) for name in demanded)
        if spec.id in present.by_id
    }
    wanted = {*names.values(), *(unique.field for unique in lost)}
    parts = await context.match_rows(Everything()) if demands or lost else []
    segments = [part.segment for part in parts]
    await context.run(bring_columns(segments, sorted(wanted), context.space.sizes))
    stored = sum(map(len, parts))
    if not stored:
        return []
    obstacles: list[Obstacle] = []
    for change in lost:
        column = await aside(build_global_dictionary, change.field, parts)
        if present_count := stored - int(column.counts[0]):
            condition = {"not": {"field": change.field, "op": "is_null"}}
            obstacles.append(Obstacle(change, present_count, condition))
    proven: set[str] = set()
    doubled = iter(sets)
    where: dict[str, Any] | None
    for demand in demands:
        if demand.code == "unique_added":
            unique_set = next(doubled)
            if not names.keys() >= set(unique_set):  # no stored record has all of them
                continue
            fields = [names[field] for field in unique_set]
            records, where = await find_doubles(context, parts, fields)
        elif demand.field not in names:
            records, where = stored, None
        elif demand.code == "required_added":
            name = names[demand.field]
            column = await aside(build_global_dictionary, name, parts)
            records, where = int(column.counts[0]), {"field": name, "op": "is_null"}
        elif demand.field in proven:
            continue
        else:
            proven.add(demand.field)
            name, spec = names[demand.field], new.fields[demand.field]
            records, where = await _find_refused(context, parts, name, spec)
        if records:
            obstacles.append(Obstacle(demand, records, where))
    return obstacles


async def _find_refused(
    context: QueryContext, parts: Sequence[Candidates], name: str, spec: FieldSpec
) -> tuple[int, dict[str, Any]]:
    """The number of records whose value the field's new rules refuse, or that it would alter, and a
    condition that finds them (with more than ``MOST_NAMED`` values, some of them).
    """
    present = context.snapshot.definition.fields[name]
    compared = context.definition.fields[name]
    column = await aside(build_global_dictionary, name, parts)

    def takes(value: Value) -> bool:
        return fits(spec, value, present)

    refused, unsure = await aside(_judge_keys, column, compared, takes)
    records = int(column.counts[refused].sum()) if len(refused) else 0
    named = [_value(column, compared, code) for code in refused[:MOST_NAMED].tolist()]
    rows = np.isin(column.codes, unsure)
    positions = np.sort(column.positions[rows]).tolist()
    for at in range(0, len(positions), BATCH):
        refs = [context.snapshot.ref(position) for position in positions[at : at + BATCH]]
        for record in await context.rows(refs, alone=True):
            value = record.data[name]
            if not takes(value):
                records += 1
                if len(named) < MOST_NAMED and value not in named:
                    named.append(value)
    return records, {"field": name, "op": "in", "value": named}


def _judge_keys(
    column: GlobalDictionary, compared: FieldSpec, takes: Callable[[Value], bool]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The codes of unfit values, and of values that only an opened record can decide."""
    refused: list[int] = []
    unsure: list[int] = []
    for code, key in enumerate(column.keys.tolist(), 1):
        if not column.counts[code]:
            continue
        if not compared.field_type.keys_tell_all:
            unsure.append(code)  # such as the offset in which an instant was written
        elif compared.kind is KeyKind.TEXT and (
            values.is_long(key) or not _is_spelled_once(values.text_of(key))
        ):
            unsure.append(code)
        elif not takes(values.from_key(compared, key)):
            refused.append(code)
    return np.array(refused, np.int64), np.array(unsure, np.int64)


def _is_spelled_once(text: str) -> bool:
    """Whether no other text has this text as its NFC."""
    return text.isascii() and AMBIGUOUS.isdisjoint(text)


def fits(spec: FieldSpec, value: Value, present: FieldSpec | None = None) -> bool:
    """Whether a stored value keeps the rules of ``spec`` exactly, or can be converted to a value of
    it without loss.

    Args:
        present: the field of the stored value, if that field has another type.
    """
    try:
        if present is not None:
            convert(present, spec, value)
            return True
        return spec.accept(value) == value
    except ValueRefused:
        return False


def _value(column: GlobalDictionary, compared: FieldSpec, code: int) -> Value:
    return values.from_key(compared, column.keys[code - 1].item())


def total(obstacles: Collection[Obstacle]) -> int:
    """The largest number of records of any of these obstacles."""
    return max((obstacle.records for obstacle in obstacles), default=0)


async def find_doubles(
    context: QueryContext, parts: Sequence[Candidates], names: Sequence[str]
) -> tuple[int, dict[str, Any]]:
    """The number of these records that share their values of all ``names`` with another record, and
    a condition that finds them (with more than ``MOST_NAMED`` distinct values, some of them).

    Args:
        parts: candidates whose columns of ``names`` are loaded.

    Raises:
        ErsError: as :meth:`QueryContext.rows`.
    """
    most = min(MOST_NAMED, MAX_COMPARISONS // len(names))
    count, examples = await aside(_find, parts, names, most)
    refs = [context.snapshot.ref(position) for position in examples]
    records = await context.rows(refs, alone=True)
    return count, _condition(names, records)


def _find(parts: Sequence[Candidates], names: Sequence[str], most: int) -> tuple[int, list[int]]:
    """The number of rows that share their values, and the positions of one row for each of some
    values.
    """
    columns = [build_global_dictionary(name, parts) for name in names]
    codes_of_fields = [column.codes for column in columns]
    # A record that lacks one of the fields collides with none.
    complete = np.flatnonzero(np.logical_and.reduce([codes > 0 for codes in codes_of_fields]))
    values = reduce(_pair, (codes[complete] for codes in codes_of_fields))
    _, firsts, counts = np.unique(values, return_index=True, return_counts=True)
    shared = counts > 1
    rows = np.sort(complete[firsts[shared]])[:most]
    return int(counts[shared].sum()), columns[0].positions[rows].tolist()


def _pair(first: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each row, equal if both inputs are: below the number of rows, so that further
    pairings fit 64 bits."""
    width = int(other.max(initial=0)) + 1
    paired: NDArray[np.int64] = np.unique(first, return_inverse=True)[1].astype(np.int64)
    return paired * width + other


def _condition(names: Sequence[str], records: Sequence[PlainRecord]) -> dict[str, Any]:
    if len(names) == 1:
        values = [record.data[names[0]] for record in records]
        return {"field": names[0], "op": "in", "value": values}
    return {
        "or": [
            {"and": [{"field": name, "op": "eq", "value": record.data[name]} for name in names]}
            for record in records
        ]
    }


#: Seconds for which a definition is compared again while others keep storing.
PATIENCE = 20.0
#: Seconds before each further attempt, after the first ``ATTEMPTS``.
PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class DefinitionPlan:
    """The cost of a new definition. ``seconds`` is how long it took to compare it with the stored
    records, at ``version`` of the log.
    """

    new: SchemaDefinition
    changes: list[DefinitionChange] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    records: int = 0
    seconds: float = 0.0
    version: int = 0
    #: the definition that it is planned to follow
    present: SchemaDefinition | None = None
    #: names of the fields of ``present`` whose values may be lost
    dropped: Collection[str] = ()

    @property
    def takes(self) -> Literal["nothing", "commit", "proof", "reseal"]:
        """The largest cost of any of the changes."""
        costs = {change.cost for change in self.changes}
        order = (Cost.RESEAL, Cost.PROOF, Cost.COMMIT)
        return next((cost.value for cost in order if cost in costs), "nothing")

    @property
    def needs_reseal(self) -> bool:
        return self.takes == Cost.RESEAL.value

    @property
    def target(self) -> SchemaDefinition:
        """The definition for which all records are resealed."""
        assert self.present is not None
        return with_ids_for_types(self.new, self.present)


@dataclass(eq=False, repr=False)
class DefinitionChanger:
    _api: Api
    _schemas: Schemas
    _committer: Committer
    _runner: QueryRunner

    async def has_log(self, user: bytes, schema: bytes, auth: str) -> bool:
        """Whether the schema has commits, as the API says or the user has seen; until then, anyone
        may define it."""
        shown = await self._api.schema(schema, auth)
        return shown.key_id is not None or await self._schemas.has_seen(user, schema)

    async def plan(
        self,
        caller: Holder,
        schema: bytes,
        text: bytes,
        renamed: Mapping[str, str],
        dropped: Collection[str] = (),
        replaced: bytes | None = None,
    ) -> DefinitionPlan:
        """Find out the cost of a definition; nothing is changed.

        Args:
            text: the definition as its owner sent it.
            renamed: new names of fields, and their current names.
            dropped: names of current fields whose values may be lost.
            replaced: the definition that it is based on; None for the current definition.

        Raises:
            InvalidDefinition: the text is not a valid definition.
            InvalidQuery: ``renamed`` or ``dropped`` has unknown names.
            PreconditionFailed: the current definition is not ``replaced``.
            ErsError: as :meth:`QueryRunner.ask`.
        """
        sent = await _parse(text)
        before = None if replaced is None else await _parse(replaced)
        return await self._plan(caller, schema, sent, renamed, dropped, before)

    async def _plan(
        self,
        caller: Holder,
        schema: bytes,
        sent: SchemaDefinition,
        renamed: Mapping[str, str],
        dropped: Collection[str] = (),
        replaced: SchemaDefinition | None = None,
    ) -> DefinitionPlan:
        async def question(context: QueryContext) -> DefinitionPlan:
            snapshot = context.snapshot
            if snapshot.history is None:
                return DefinitionPlan(sent)
            present = snapshot.definition
            _require_present(present, replaced, sent)
            _check_renames(present, sent, renamed)
            _check_drops(present, dropped)
            new = sent.following(present, renamed)
            refuse_reserved(new.fields.keys() - present.fields.keys())
            changes = list_changes(present, new)
            began = runtime.monotonic()
            obstacles = await find_obstacles(context, new, changes, dropped)
            seconds = runtime.monotonic() - began
            count, version = snapshot.count, snapshot.version
            return DefinitionPlan(
                new, changes, obstacles, count, seconds, version, present, dropped
            )

        return await self._runner.ask(caller, schema, question)

    async def change(
        self,
        caller: Holder,
        schema: bytes,
        text: bytes,
        renamed: Mapping[str, str] | None = None,
        replaced: bytes | None = None,
    ) -> DefinitionPlan:
        """Commit a definition, unless it differs from the current definition only in spelling.

        Args:
            text, renamed, replaced: as for :meth:`plan`.

        Raises:
            InvalidDefinition: the text is not a valid definition.
            PreconditionFailed: the current definition is not ``replaced``.
            Conflict: ``needs_reencryption``; stored records do not fit, or have to be re-encrypted.
            ErsError: as for :meth:`Committer.store`.
        """
        sent = await _parse(text)
        before = None if replaced is None else await _parse(replaced)
        until = runtime.monotonic() + PATIENCE
        for attempt in itertools.count(1):
            plan = await self._plan(caller, schema, sent, renamed or {}, (), before)
            refuse(plan)
            try:
                await self._commit(caller, schema, plan)
            except Conflict as error:
                # Others store meanwhile, maybe often: their records are compared, too.
                often = attempt >= ATTEMPTS
                if error.reason not in LOST_RACES or (often and runtime.monotonic() >= until):
                    raise
                await runtime.sleep(PAUSE if often else 0)
                log.info("a commit lost a race (%s) and is drafted again", error.reason)
            else:
                return plan
        raise AssertionError("the last attempt returns or raises")

    async def _commit(self, caller: Holder, schema: bytes, plan: DefinitionPlan) -> None:
        state = await self._schemas.refresh(caller, schema)
        async with state.lock:
            await self._committer.prepare(caller, [state])
            present = state.ledger.definition
            # Without a definition, the log has no commit, and so no records that break a rule.
            if present is None or present.digest == plan.new.digest:
                return
            exact = any(change.cost is Cost.PROOF for change in plan.changes)
            _require_as_planned(state, present, plan, exact=exact)
            upload = state.ledger.draft(plan.new, new_definition=True, exact=exact)
            await self._committer.store(caller, [(state, upload)])


def refuse(plan: DefinitionPlan) -> None:
    """Accept a plan that can be committed, and refuse all others.

    Raises:
        Conflict: ``needs_reencryption``, with the JSON pointer of each change that prevents it.
    """
    refuse_changes(plan.changes, proven=True)
    refuse_obstacles(plan)


def refuse_obstacles(plan: DefinitionPlan) -> None:
    """
    Raises:
        Conflict: ``needs_reencryption``, with the JSON pointer of each change that stored records
            do not fit; ``change_in_two_steps``.
    """
    if plan.needs_reseal and any(change.code == "unique_added" for change in plan.changes):
        raise Conflict(
            "unique fields cannot be added while all records are re-encrypted",
            code="change_in_two_steps",
            hint="make the other changes first; then add unique, which re-encrypts nothing",
        )
    if not plan.obstacles:
        return
    count = total(plan.obstacles)
    raise Conflict(
        f"{count} stored {'record does' if count == 1 else 'records do'} not match the new"
        " definition",
        code="needs_reencryption",
        hint="correct or delete them; ers schema change, or POST /api/schemas/<id>/change/ with"
        " dry_run, shows a search that finds them",
        flaws=tuple(
            Flaw(
                obstacle.change.code,
                f"{obstacle.change.detail}: {obstacle.records} of {plan.records} do",
                pointer=obstacle.change.pointer,
            )
            for obstacle in plan.obstacles
        ),
    )


def _require_as_planned(
    state: SchemaState, present: SchemaDefinition, plan: DefinitionPlan, *, exact: bool
) -> None:
    """
    Raises:
        Conflict: ``log_conflict``; the definition, or records that it was compared with, have
            changed.
    """
    follows = plan.new.follows(present) and list_changes(present, plan.new) == plan.changes
    if not follows or (exact and state.ledger.added_at > plan.version):
        raise Conflict("the schema changed while its definition was compared", code="log_conflict")


async def _parse(text: bytes) -> SchemaDefinition:
    return await by_size(len(text))(parse_definition, text)


def _require_present(
    present: SchemaDefinition, replaced: SchemaDefinition | None, sent: SchemaDefinition
) -> None:
    """
    Raises:
        PreconditionFailed: the current definition is neither ``replaced`` nor the definition of the
            request, as in a repeated request.
    """
    possible = [] if replaced is None else [replaced, sent]
    if possible and all(
        definition.following(present).digest != present.digest for definition in possible
    ):
        raise PreconditionFailed(
            "the schema now has another definition",
            hint="read it again, and repeat the change if you still want it",
        )


def _check_renames(
    present: SchemaDefinition, sent: SchemaDefinition, renamed: Mapping[str, str]
) -> None:
    """
    Raises:
        InvalidQuery: a field does not exist, or is named twice.
    """
    old = list(renamed.values())
    wrong = [
        name
        for name, before in renamed.items()
        if name not in sent.fields or before not in present.fields or old.count(before) > 1
    ]
    if wrong:
        detail = "names a field that does not exist, or one twice"
        raise InvalidQuery(
            "the renames are not valid",
            flaws=tuple(Flaw("unknown_field", detail, f"/renames/{name}") for name in wrong),
        )


def _check_drops(present: SchemaDefinition, dropped: Collection[str]) -> None:
    """
    Raises:
        InvalidQuery: a field does not exist, so another field was meant.
    """
    wrong = [at for at, name in enumerate(dropped) if name not in present.fields]
    if wrong:
        detail = f"the schema has no such field; it has {', '.join(present.fields)}"
        raise InvalidQuery(
            "a field to be dropped is not a field of the schema",
            flaws=tuple(Flaw("unknown_field", detail, f"/drops/{at}") for at in wrong),
            hint="nothing was changed; correct the name",
        )
