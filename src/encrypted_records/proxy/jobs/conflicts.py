"""Resolve conflicts: a job's rows whose values of unique fields other records have.

The index keys of the rows are compared with the columns before anything is sealed, again before the
job is published, and under the schema's lock for the commit, which is exact. If a result differs
from the previous one, the affected chunks are sealed again.

The stored records that have values of a job's rows are kept up to date with the log: columns are
read once, and after that only segments with later rows. Positions identify stored rows, because
they outlive merges.

A decision stores a row, leaves it out, or makes it the next version of a record. All rows are
stored together, so that a value may move from one record to another. If rows may be left out,
colliding rows are decided one after another in their order, and the values that an earlier row took
or freed count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from encrypted_records import runtime
from encrypted_records.errors import BadInput, Conflict, Flaw, NotFound, TooLarge
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.ordinals import ordinals
from encrypted_records.index.query.asking import open_columns
from encrypted_records.index.query.candidates import Candidates, Matches
from encrypted_records.index.segments.loaded import OpenedSegment
from encrypted_records.ingest.check import MAX_ERRORS
from encrypted_records.model.definition import SchemaDefinition, hint_of_sets
from encrypted_records.model.ids import reference
from encrypted_records.model.predicates import greatest_classes
from encrypted_records.model.records import MAX_KILLED, RowRef
from encrypted_records.proxy.jobs.job import JobOptions, StoredJob
from encrypted_records.proxy.jobs.row_keys import JobKeys, Name, Numbers, SetCodes, look_up_names
from encrypted_records.proxy.jobs.store import JobDependencies
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside, run_together
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.search.upstream import Upstream
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.unique import LOG_MOVED, at_one_version, say


class FatesChanged(Exception):
    """Rows were sealed for outcomes that no longer hold."""


class ValueHolders:
    """A job's rows of one schema, and the stored records that have their values."""

    def __init__(self, keys: JobKeys, made: SchemaDefinition) -> None:
        """
        Args:
            made: the definition under which the rows were checked.
        """
        self.keys = keys
        self._made = made
        #: for each set, the ids of its fields
        self._of: tuple[tuple[int, ...], ...] = ()
        self.sets: list[SetCodes] = []
        #: by set and number of its values, the position of the live row that has them, or -1
        self.holders: list[Numbers] = []
        #: the number of rows ever stored when this was last updated
        self._stored = 0

    async def follow(self, context: QueryContext) -> None:
        """Update ``holders`` to the context's snapshot.

        Raises:
            NotFound: ``segment_gone``.
            DoesNotOpen: a page was altered.
        """
        snapshot, compared = context.snapshot, context.definition
        wanted = tuple(
            tuple(compared.fields[name].id for name in names) for names in compared.unique
        )
        if wanted != self._of:
            await aside(self._begin, wanted)
        await aside(self._drop_dead, snapshot)
        names = sorted({compared.by_id[number].name for numbers in wanted for number in numbers})
        for segment in snapshot.segments:
            # All of its rows were looked up before, maybe in segments that it replaced.
            if snapshot.places(segment).highest < self._stored:
                continue
            opened = await context.run(open_columns(segment, names, context.space.sizes))
            await aside(self._take, opened, snapshot, compared)
        self._stored = snapshot.stored

    def _begin(self, wanted: tuple[tuple[int, ...], ...]) -> None:
        self.sets = [SetCodes.of(self.keys, fields) for fields in wanted]
        self.holders = [np.full(values.count + 1, -1, np.int64) for values in self.sets]
        self._of, self._stored = wanted, 0

    def _drop_dead(self, snapshot: Snapshot) -> None:
        for positions in self.holders:
            taken = np.flatnonzero(positions >= 0)
            positions[taken[~are_live(snapshot, positions[taken])]] = -1

    def _take(self, segment: OpenedSegment, snapshot: Snapshot, compared: SchemaDefinition) -> None:
        matches = Matches.exactly(segment.everything)
        part = Candidates.of(segment, matches, snapshot)
        part = part.only(part.positions >= self._stored)
        for set_codes, positions in zip(self.sets, self.holders, strict=True):
            codes = set_codes.of_segment(self.keys, part, self._made, compared)
            rows = np.flatnonzero(codes)
            positions[codes[rows]] = part.positions[rows]


def are_live(snapshot: Snapshot, positions: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A mask of the live rows among those at these positions."""
    live = np.ones(len(positions), np.bool_)
    starts = np.array(snapshot.starts[: len(snapshot.groups) + 1], np.int64)
    groups = np.searchsorted(starts, positions, "right") - 1
    for number in np.unique(groups).tolist():
        dead = snapshot.dead.get(snapshot.in_order[number].uid)
        if dead:
            of_group = np.flatnonzero(groups == number)
            live[of_group] = ~np.isin(positions[of_group] - starts[number], ordinals(dead))
    return live


Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Clash:
    """Row ``at`` collides in the set of number ``of`` with the row ``other``, or with the record at
    ``position``; if there is neither, it lacks a field of the set."""

    at: int
    of: int
    other: int | None = None
    position: int | None = None


@dataclass(frozen=True, eq=False)
class Verdict:
    """The decision on each row: whether it is stored, and the position of the record that it
    replaces, or -1.

    ``clashes`` are the first of the ``refused`` collisions.
    """

    kept: Mask
    target: Numbers
    refused: int
    clashes: list[Clash]

    def is_same(self, other: Verdict) -> bool:
        return np.array_equal(self.kept, other.kept) and np.array_equal(self.target, other.target)


def decide(
    codes: Sequence[Numbers],
    holders: Sequence[Numbers],
    *,
    by: int | None,
    skip: bool,
    most: int,
) -> Verdict:
    """
    Args:
        codes: for each set, a number for each row; 0 collides with no row.
        holders: for each set, the position of the stored record that has the number, or -1, indexed
            by number.
        by: the set that finds the records to replace; without it none are replaced.
        skip: whether colliding rows are left out; otherwise nothing is stored if there is a
            collision.
        most: maximum number of collisions that are reported in detail.
    """
    rows = len(codes[0])
    target: Numbers = np.full(rows, -1, np.int64)
    kept = np.ones(rows, np.bool_)
    if by is not None:
        target = np.where(codes[by] > 0, holders[by][codes[by]], -1)
        kept = codes[by] > 0
    flawed = _find_flawed(codes, holders, kept, target)
    clashes = [] if by is None else [Clash(at, by) for at in np.flatnonzero(~kept)[:most].tolist()]
    if not skip or not flawed.any():
        clashes += _describe(codes, holders, kept, target, np.flatnonzero(flawed)[:most])
        refused = int((flawed | ~kept).sum())
        left = kept & ~flawed
        return Verdict(left, np.where(left, target, -1), refused, clashes[:most])
    for clash in _take_in_order(codes, holders, kept, target, flawed):
        kept[clash.at] = False
        if len(clashes) < most:
            clashes.append(clash)
    return Verdict(kept, np.where(kept, target, -1), int((~kept).sum()), clashes)


def _find_flawed(
    codes: Sequence[Numbers], holders: Sequence[Numbers], kept: Mask, target: Numbers
) -> Mask:
    """A mask of the rows that collide with an earlier row, or with a record that no row
    replaces.
    """
    flawed = np.zeros(len(kept), np.bool_)
    replaced = target[kept & (target >= 0)]
    for of_set, positions in zip(codes, holders, strict=True):
        rows = np.flatnonzero(kept & (of_set > 0))
        _, first, which = np.unique(of_set[rows], return_index=True, return_inverse=True)
        holder = positions[of_set[rows]]
        taken = (holder >= 0) & ~np.isin(holder, replaced)
        flawed[rows[taken | (first[which] != np.arange(len(rows)))]] = True
    return flawed


def _describe(
    codes: Sequence[Numbers],
    holders: Sequence[Numbers],
    kept: Mask,
    target: Numbers,
    rows: NDArray[np.intp],
) -> list[Clash]:
    """The first collision of each of these rows."""
    replaced = frozenset(target[kept & (target >= 0)].tolist())
    firsts: list[Numbers] = []
    for of_set, positions in zip(codes, holders, strict=True):
        first: Numbers = np.full(len(positions), len(of_set), np.int64)
        with_code = np.flatnonzero(kept & (of_set > 0))[::-1]
        first[of_set[with_code]] = with_code
        firsts.append(first)
    clashes: list[Clash] = []
    for at in rows.tolist():
        for of, (of_set, positions) in enumerate(zip(codes, holders, strict=True)):
            code = int(of_set[at])
            position, other = int(positions[code]), int(firsts[of][code])
            if code and position >= 0 and position not in replaced:
                clashes.append(Clash(at, of, position=position))
                break
            if code and other < at:
                clashes.append(Clash(at, of, other=other))
                break
    return clashes


def _take_in_order(
    codes: Sequence[Numbers],
    holders: Sequence[Numbers],
    kept: Mask,
    target: Numbers,
    flawed: Mask,
) -> list[Clash]:
    """Decide row by row, storing each row that can be stored; returns the others' collisions."""
    involved = flawed.copy()
    for of_set, positions in zip(codes, holders, strict=True):
        shared = np.bincount(of_set[kept], minlength=len(positions)) > 1
        holder = positions[of_set]
        involved |= (of_set > 0) & (shared[of_set] | ((holder >= 0) & (holder != target)))
    involved &= kept
    freed = set(target[kept & ~involved & (target >= 0)].tolist())
    rows = np.flatnonzero(involved)
    of_sets = list(zip(*(of_set[rows].tolist() for of_set in codes), strict=True))
    of_holders = list(
        zip(
            *(
                positions[of_set[rows]].tolist()
                for of_set, positions in zip(codes, holders, strict=True)
            ),
            strict=True,
        )
    )
    taken: list[dict[int, int]] = [{} for _ in codes]
    clashes: list[Clash] = []
    for at, replaced, values, held_by in zip(
        rows.tolist(), target[rows].tolist(), of_sets, of_holders, strict=True
    ):
        clash = None
        for of, (code, position) in enumerate(zip(values, held_by, strict=True)):
            if not code:
                continue
            if code in taken[of]:
                clash = Clash(at, of, other=taken[of][code])
            elif position not in (-1, replaced) and position not in freed:
                clash = Clash(at, of, position=position)
            if clash:
                break
        if clash:
            clashes.append(clash)
            continue
        for of, code in enumerate(values):
            if code:
                taken[of][code] = at
        if replaced >= 0:
            freed.add(replaced)
    return clashes


@dataclass
class _JobSchema:
    """A schema of a running job."""

    matching: ValueHolders
    verdict: Verdict | None = None
    names: dict[int, Name] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """Encoded outcomes of a job's rows by number of the chunk, how many rows are ``refused``, and
    why; ``failed`` says that nothing is stored because of them.
    """

    fates: dict[int, bytes]
    flaws: list[Flaw]
    refused: int
    replaced: int
    failed: bool


@dataclass(frozen=True, slots=True)
class SchemaToCheck:
    """A schema of a job with its state, and the definition under which the job was checked."""

    state: SchemaState
    keys: messages.SchemaKeyBytes
    made: SchemaDefinition


class Conflicts:
    def __init__(self, uses: JobDependencies, fetcher: Fetcher, workers: WorkerPool) -> None:
        self._uses = uses
        self._fetcher = fetcher
        self._workers = workers
        self._schemas_by_job: dict[bytes, dict[bytes, _JobSchema]] = {}

    def forget(self, job: bytes) -> None:
        """Drop the data of a job that has ended, or is checked again."""
        self._schemas_by_job.pop(job, None)

    async def settle(
        self,
        job: StoredJob,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[SchemaToCheck],
    ) -> None:
        """Decide for all rows, and have the chunks sealed again whose rows have other outcomes.

        Raises:
            Conflict: ``not_unique``; rows collide, and the job does not leave them out.
            BadInput: rows lack a field of the set that finds records; or as :func:`require_set`.
            TooLarge: the job replaces more records than a commit may end.
        """
        found = await self._judge(job, caller, source, schemas)
        seal_errors = self._uses.secrets.seal_errors
        sealed = await runtime.in_thread(seal_errors, job, found.flaws[:MAX_ERRORS], "conflicts")
        await runtime.in_thread(
            self._uses.store.fates.replace,
            job.id,
            found.fates,
            conflicts=found.refused,
            replaced=found.replaced,
            errors=sealed,
        )
        if found.failed:
            raise _refusal(found.refused, job)

    async def _judge(
        self,
        job: StoredJob,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[SchemaToCheck],
    ) -> _Outcomes:
        """
        Raises:
            BadInput, TooLarge: as :meth:`settle`.
        """
        job_schemas = await self._gather(job, source, schemas)
        fates: dict[int, list[messages.Fate]] = {}
        flaws: list[Flaw] = []
        refused = replaced = 0
        for checked in schemas:
            job_schema = job_schemas.get(checked.state.id)
            if job_schema is None:
                continue
            context, verdict = await self._decide(job, caller, checked.state, job_schema)
            refused += verdict.refused
            targets = verdict.target[verdict.target >= 0]
            replaced += len(targets)
            failed = bool(refused) and not job.options.skips_conflicts
            # If the job fails, nothing is replaced.
            wanted = [] if failed else await aside(targets.tolist)
            await self._learn_names(context, job_schema, verdict.clashes, wanted)
            flaws += await aside(_flaws, job_schema, verdict, context.definition)
            job_schema.verdict = verdict
            if failed:
                continue
            new_fates = await aside(_fates, checked.state.id, context.snapshot, job_schema, verdict)
            for chunk, fate in new_fates.items():
                fates.setdefault(chunk, []).append(fate)
        flaws.sort(key=lambda flaw: flaw.row or 0)
        if refused and not job.options.skips_conflicts:
            return _Outcomes({}, flaws, refused, 0, failed=True)
        return _Outcomes(await aside(_encode_all, fates), flaws, refused, replaced, failed=False)

    async def prepare(
        self,
        job: StoredJob,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[SchemaToCheck],
    ) -> None:
        """After a restart, determine again the outcomes that the job's rows were sealed for.

        A publication may be on its way. So nothing is stored here, and the job does not fail: its
        rows may collide with themselves.

        Raises:
            FatesChanged: the outcomes have changed.
        """
        if job.id in self._schemas_by_job:
            return
        before = await runtime.in_thread(self._uses.store.fates.get, job.id)
        try:
            found = await self._judge(job, caller, source, schemas)
        except (BadInput, TooLarge):
            raise FatesChanged from None
        if found.failed or before != found.fates:
            raise FatesChanged

    async def confirm(self, job: StoredJob, caller: Holder, state: SchemaState) -> list[RowRef]:
        """The rows that the job's commit ends. The state's lock is held.

        Raises:
            FatesChanged: the sealed rows are not those that are to be stored now.
            Conflict: ``log_moved``; segments of this version are gone.
        """
        job_schema = self._schemas_by_job.get(job.id, {}).get(state.id)
        if job_schema is None:
            return []
        context, verdict = await self._decide(job, caller, state, job_schema)
        if job_schema.verdict is None or not verdict.is_same(job_schema.verdict):
            raise FatesChanged
        return await aside(_refs, context.snapshot, verdict)

    async def _decide(
        self, job: StoredJob, caller: Holder, state: SchemaState, job_schema: _JobSchema
    ) -> tuple[QueryContext, Verdict]:
        context = QueryContext(
            Upstream(self._uses.api, caller, state, confirmed=True), self._fetcher
        )
        with at_one_version(context):
            await job_schema.matching.follow(context)
        verdict = await aside(
            decide,
            [values.codes for values in job_schema.matching.sets],
            job_schema.matching.holders,
            by=require_set(context.definition, job.options),
            skip=job.options.skips_conflicts,
            most=MAX_ERRORS,
        )
        if int((verdict.target >= 0).sum()) > MAX_KILLED:
            raise TooLarge(
                f"a job replaces at most {MAX_KILLED} records of a schema",
                hint="send the file in parts",
            )
        return context, verdict

    async def _gather(
        self, job: StoredJob, source: messages.UploadSource, schemas: Sequence[SchemaToCheck]
    ) -> dict[bytes, _JobSchema]:
        """The keys of the job's rows, by schema with unique fields and rows."""
        job_schemas = self._schemas_by_job.get(job.id)
        if job_schemas is not None:
            return job_schemas
        fields = [_fields_of(schema.state.definition) for schema in schemas]
        tasks = iter(await runtime.in_thread(self._uses.store.chunks, job.id))
        found: list[tuple[int, messages.ChunkKeys]] = []
        keys = [schema.keys for schema in schemas]

        async def compute() -> None:
            for chunk in tasks:
                reply = await self._workers.run(messages.KeysTask(source, chunk, keys, fields))
                assert isinstance(reply, messages.ChunkKeys)
                found.append((chunk.number, reply))

        await run_together([compute] * self._workers.count)
        found.sort(key=lambda item: item[0])
        job_schemas = {}
        for schema in schemas:
            parts = [
                (number, part)
                for number, chunk in found
                for part in chunk.schemas
                if part.schema == schema.state.id
            ]
            if parts:
                job_schemas[schema.state.id] = _JobSchema(
                    ValueHolders(await aside(JobKeys.of, parts), schema.made)
                )
        self._schemas_by_job[job.id] = job_schemas
        return job_schemas

    async def _learn_names(
        self,
        context: QueryContext,
        job_schema: _JobSchema,
        clashes: Sequence[Clash],
        targets: Iterable[int],
    ) -> None:
        """Learn the names of replaced records, and of those with the values of refused rows."""
        missing = await aside(_missing, job_schema, clashes, targets)
        if missing:
            try:
                found = await look_up_names(context.upstream, missing)
            except NotFound as error:
                if error.reason != "row_gone":
                    raise
                # The job waits for a newer version: a row opens only by its name, which is never
                # guessed.
                raise Conflict("the log has moved on", code=LOG_MOVED) from None
            job_schema.names |= found


def require_set(definition: SchemaDefinition, options: JobOptions) -> int | None:
    """The definition's set that finds the records to replace; None if none are replaced.

    Raises:
        BadInput: ``invalid_parameter``; the job names no set of the definition, or is ambiguous.
    """
    if options.on_conflict != "replace":
        return None
    by = tuple(sorted(options.by))
    if by in definition.unique:
        return definition.unique.index(by)
    if not by and len(definition.unique) == 1:
        return 0
    detail = "several sets of fields are unique, and none of them was chosen"
    if by:
        detail = f"{', '.join(by)} is not one of the sets of unique fields"
    elif not definition.unique:
        detail = "no fields are unique, so no record can be identified for replacement"
    raise BadInput(
        detail,
        code="invalid_parameter",
        flaws=(Flaw("invalid_parameter", detail, parameter="by"),),
        hint=f"nothing was stored; {hint_of_sets(definition)}",
    )


def _fields_of(definition: SchemaDefinition) -> list[int]:
    """The ids of all fields of unique sets."""
    return sorted({definition.fields[name].id for names in definition.unique for name in names})


def _flaws(job_schema: _JobSchema, verdict: Verdict, definition: SchemaDefinition) -> list[Flaw]:
    return [_flaw(job_schema, clash, definition) for clash in verdict.clashes]


def _flaw(job_schema: _JobSchema, clash: Clash, definition: SchemaDefinition) -> Flaw:
    rows = job_schema.matching.keys.rows
    fields = definition.unique[clash.of]
    row, last = int(rows[clash.at]), fields[-1]
    if clash.position is not None:
        where = reference("records", job_schema.names[clash.position][0])
    elif clash.other is not None:
        where = f"row {int(rows[clash.other])} of this file"
    else:
        return Flaw("required", "this field identifies the record to replace", row=row, field=last)
    return Flaw("not_unique", say(fields, where), row=row, field=last)


def _fates(
    schema: bytes, snapshot: Snapshot, job_schema: _JobSchema, verdict: Verdict
) -> dict[int, messages.Fate]:
    """The outcomes of rows by chunk, except rows that are simply stored."""
    keys = job_schema.matching.keys
    decided = np.flatnonzero(~verdict.kept | (verdict.target >= 0))
    fates: dict[int, messages.Fate] = {}
    for chunk in np.unique(keys.chunks[decided]).tolist():
        rows = decided[keys.chunks[decided] == chunk]
        left_out = keys.rows[rows[~verdict.kept[rows]]].tolist()
        changed = rows[verdict.target[rows] >= 0]
        targets = verdict.target[changed].tolist()
        groups = {ref.group for ref in map(snapshot.ref, targets)}
        fates[chunk] = messages.Fate(
            schema,
            left_out,
            [
                (row, *job_schema.names[target])
                for row, target in zip(keys.rows[changed].tolist(), targets, strict=True)
            ],
            greatest_classes([snapshot.groups[uid].group for uid in sorted(groups)]),
        )
    return fates


def _missing(job_schema: _JobSchema, clashes: Sequence[Clash], targets: Iterable[int]) -> list[int]:
    """Positions of records whose names are not known yet, ascending."""
    holders = {clash.position for clash in clashes if clash.position is not None}
    return sorted({*targets, *holders} - job_schema.names.keys())


def _encode_all(fates: Mapping[int, list[messages.Fate]]) -> dict[int, bytes]:
    return {chunk: msgspec.msgpack.encode(outcomes) for chunk, outcomes in fates.items()}


decode_fates = msgspec.msgpack.Decoder(list[messages.Fate]).decode


def _refs(snapshot: Snapshot, verdict: Verdict) -> list[RowRef]:
    return [snapshot.ref(position) for position in verdict.target[verdict.target >= 0].tolist()]


def _refusal(refused: int, job: StoredJob) -> Conflict:
    verb = "has" if refused == 1 else "have"
    way_out = (
        "on conflict, skip leaves them out, and replace stores them instead of the records"
        " that have these values"
    )
    if job.options.on_conflict == "replace":
        way_out = (
            "they belong to other rows, or to a record that is not being replaced; correct"
            " the file, or skip invalid rows"
        )
    return Conflict(
        f"{refused} of {job.total} records {verb} unique values that others already have;"
        " nothing was stored",
        code="not_unique",
        hint=f"the job's errors list them; {way_out}",
    )
