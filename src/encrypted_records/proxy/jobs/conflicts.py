"""Resolution of conflicts: a job's rows whose values of unique fields others have.

Their keys are compared with the columns before anything is sealed, again before the job is
published, and under the schema's lock for the commit, which is exact. Where an answer is another
than before, the chunks that it changes are sealed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from encrypted_records import runtime
from encrypted_records.errors import BadInput, Conflict, DoesNotOpen, Flaw, NotFound, TooLarge
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.ingest.check import MAX_ERRORS
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import reference
from encrypted_records.model.records import MAX_KILLED, RowRef
from encrypted_records.model.unique import greatest_classes
from encrypted_records.proxy.jobs.dependencies import JobDependencies
from encrypted_records.proxy.jobs.job import Job, JobOptions
from encrypted_records.proxy.jobs.job_keys import JobKeys
from encrypted_records.proxy.jobs.matching import Matching
from encrypted_records.proxy.jobs.names import Name, look_up_names
from encrypted_records.proxy.jobs.together import run_together
from encrypted_records.proxy.jobs.verdict import Clash, Verdict, decide
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.search.upstream import Upstream
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.pool import WorkerPool
from encrypted_records.proxy.write.unique import LOG_MOVED, say


class FatesChanged(Exception):
    """Rows were sealed for fates that are not theirs any more."""


@dataclass
class _Schema:
    """A schema of a job under way."""

    matching: Matching
    verdict: Verdict | None = None
    names: dict[int, Name] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Found:
    """Fates of a job's rows by number of the chunk, encoded, how many rows are ``refused``, and
    why; ``failed`` says that nothing is stored because of them.
    """

    fates: dict[int, bytes]
    flaws: list[Flaw]
    refused: int
    replaced: int
    failed: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """A schema of a job with its state, and the definition under which the job was checked."""

    state: SchemaState
    keys: messages.SchemaKeyBytes
    made: SchemaDefinition


class Conflicts:
    def __init__(self, uses: JobDependencies, fetcher: Fetcher, workers: WorkerPool) -> None:
        self._uses = uses
        self._fetcher = fetcher
        self._workers = workers
        self._held: dict[bytes, dict[bytes, _Schema]] = {}

    def forget(self, job: bytes) -> None:
        """The job has ended, or is checked again."""
        self._held.pop(job, None)

    async def settle(
        self,
        job: Job,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[Checked],
    ) -> None:
        """Decide for all rows, and have those chunks sealed for which something else holds now.

        Raises:
            Conflict: ``not_unique``; rows collide, and the job does not leave them out.
            BadInput: rows lack a field that they are found by; or as :func:`require_set`.
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
        job: Job,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[Checked],
    ) -> _Found:
        """
        Raises:
            BadInput, TooLarge: as :meth:`settle`.
        """
        held = await self._gather(job, source, schemas)
        fates: dict[int, list[messages.Fate]] = {}
        flaws: list[Flaw] = []
        refused = replaced = 0
        for checked in schemas:
            own = held.get(checked.state.id)
            if own is None:
                continue
            context, verdict = await self._decide(job, caller, checked.state, own)
            refused += verdict.refused
            targets = verdict.target[verdict.target >= 0]
            replaced += len(targets)
            failed = bool(refused) and not job.options.skips_conflicts
            # Where the job fails, nothing is replaced.
            wanted = [] if failed else await aside(targets.tolist)
            await self._learn_names(context, own, verdict.clashes, wanted)
            flaws += await aside(_flaws, own, verdict, context.definition)
            own.verdict = verdict
            if failed:
                continue
            own_fates = await aside(_fates, checked.state.id, context.snapshot, own, verdict)
            for chunk, fate in own_fates.items():
                fates.setdefault(chunk, []).append(fate)
        flaws.sort(key=lambda flaw: flaw.row or 0)
        if refused and not job.options.skips_conflicts:
            return _Found({}, flaws, refused, 0, failed=True)
        return _Found(await aside(_encode_all, fates), flaws, refused, replaced, failed=False)

    async def prepare(
        self,
        job: Job,
        caller: Holder,
        source: messages.UploadSource,
        schemas: Sequence[Checked],
    ) -> None:
        """Know again, after a restart, for which fates the job's rows were sealed.

        A publication may be on its way. So nothing is entered here, and the job does not fail: its
        rows may collide with themselves.

        Raises:
            FatesChanged: they are others by now.
        """
        if job.id in self._held:
            return
        before = await runtime.in_thread(self._uses.store.fates.get, job.id)
        try:
            found = await self._judge(job, caller, source, schemas)
        except (BadInput, TooLarge):
            raise FatesChanged from None
        if found.failed or before != found.fates:
            raise FatesChanged

    async def confirm(self, job: Job, caller: Holder, state: SchemaState) -> list[RowRef]:
        """The rows that the job's commit ends. The state's lock is held.

        Raises:
            FatesChanged: what was sealed is not what is to be stored now.
            Conflict: ``log_moved``; segments of this version are gone.
        """
        own = self._held.get(job.id, {}).get(state.id)
        if own is None:
            return []
        context, verdict = await self._decide(job, caller, state, own)
        if own.verdict is None or not verdict.is_same(own.verdict):
            raise FatesChanged
        return await aside(_refs, context.snapshot, verdict)

    async def _decide(
        self, job: Job, caller: Holder, state: SchemaState, own: _Schema
    ) -> tuple[QueryContext, Verdict]:
        context = QueryContext(
            Upstream(self._uses.api, caller, state, confirmed=True), self._fetcher
        )
        try:
            await own.matching.follow(context)
        except NotFound as error:
            if error.reason != "segment_gone":
                raise
            # No row is let through on this word: a job waits, and compares at a newer version.
            raise Conflict("the log has moved on", code=LOG_MOVED) from None
        except DoesNotOpen:
            # A cached page may be the altered one.
            self._fetcher.forget(context.snapshot.segments)
            raise
        verdict = await aside(
            decide,
            [one.codes for one in own.matching.sets],
            own.matching.holders,
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
        self, job: Job, source: messages.UploadSource, schemas: Sequence[Checked]
    ) -> dict[bytes, _Schema]:
        """The keys of the job's rows, by schema with unique fields and rows."""
        held = self._held.get(job.id)
        if held is not None:
            return held
        fields = [_fields_of(schema.state.definition) for schema in schemas]
        tasks = iter(await runtime.in_thread(self._uses.store.chunks, job.id))
        found: list[tuple[int, messages.ChunkKeys]] = []
        keys = [schema.keys for schema in schemas]

        async def compute() -> None:
            for chunk in tasks:
                told = await self._workers.run(messages.KeysTask(source, chunk, keys, fields))
                assert isinstance(told, messages.ChunkKeys)
                found.append((chunk.number, told))

        await run_together([compute] * self._workers.count)
        found.sort(key=lambda one: one[0])
        held = {}
        for one in schemas:
            parts = [
                (number, part)
                for number, chunk in found
                for part in chunk.schemas
                if part.schema == one.state.id
            ]
            if parts:
                held[one.state.id] = _Schema(Matching(await aside(JobKeys.of, parts), one.made))
        self._held[job.id] = held
        return held

    async def _learn_names(
        self,
        context: QueryContext,
        own: _Schema,
        clashes: Sequence[Clash],
        targets: Iterable[int],
    ) -> None:
        """Learn which records are replaced, and which hold the values of rows that are refused."""
        missing = await aside(_missing, own, clashes, targets)
        if missing:
            try:
                found = await look_up_names(context.upstream, missing)
            except NotFound as error:
                if error.reason != "row_gone":
                    raise
                # The job waits as above; a name is what opens a row, and never a guess.
                raise Conflict("the log has moved on", code=LOG_MOVED) from None
            own.names |= found


def require_set(definition: SchemaDefinition, options: JobOptions) -> int | None:
    """The definition's set that finds the records to replace; None where none are.

    Raises:
        BadInput: ``invalid_parameter``; the job names no set of these, or does not say which.
    """
    if options.on_conflict != "replace":
        return None
    by = tuple(sorted(options.by))
    if by in definition.unique:
        return definition.unique.index(by)
    if not by and len(definition.unique) == 1:
        return 0
    detail = "it is not said by which of the unique fields a record is found"
    if by:
        detail = f"{', '.join(by)} is not among the sets of fields that are unique"
    elif not definition.unique:
        detail = "no fields are unique, so that no record is found to be replaced"
    raise BadInput(
        detail,
        code="invalid_parameter",
        flaws=(Flaw("invalid_parameter", detail, parameter="by"),),
        hint="nothing was stored; name the fields of one set of the definition's unique as by",
    )


def _fields_of(definition: SchemaDefinition) -> list[int]:
    """The ids of the fields that are in a set."""
    return sorted({definition.fields[name].id for names in definition.unique for name in names})


def _flaws(own: _Schema, verdict: Verdict, definition: SchemaDefinition) -> list[Flaw]:
    return [_flaw(own, clash, definition) for clash in verdict.clashes]


def _flaw(own: _Schema, clash: Clash, definition: SchemaDefinition) -> Flaw:
    rows = own.matching.keys.rows
    fields = definition.unique[clash.of]
    row, last = int(rows[clash.at]), fields[-1]
    if clash.position is not None:
        where = reference("records", own.names[clash.position][0])
    elif clash.other is not None:
        where = f"row {int(rows[clash.other])} of this file"
    else:
        return Flaw("required", "a record is found by this field", row=row, field=last)
    return Flaw("not_unique", say(fields, where), row=row, field=last)


def _fates(
    schema: bytes, snapshot: Snapshot, own: _Schema, verdict: Verdict
) -> dict[int, messages.Fate]:
    """By chunk, what becomes of its rows, where that is not simply to be stored."""
    keys = own.matching.keys
    some = np.flatnonzero(~verdict.kept | (verdict.target >= 0))
    fates: dict[int, messages.Fate] = {}
    for chunk in np.unique(keys.chunks[some]).tolist():
        rows = some[keys.chunks[some] == chunk]
        left_out = keys.rows[rows[~verdict.kept[rows]]].tolist()
        changed = rows[verdict.target[rows] >= 0]
        targets = verdict.target[changed].tolist()
        groups = {ref.group for ref in map(snapshot.ref, targets)}
        fates[chunk] = messages.Fate(
            schema,
            left_out,
            [
                (row, *own.names[target])
                for row, target in zip(keys.rows[changed].tolist(), targets, strict=True)
            ],
            greatest_classes([snapshot.groups[uid].group for uid in sorted(groups)]),
        )
    return fates


def _missing(own: _Schema, clashes: Sequence[Clash], targets: Iterable[int]) -> list[int]:
    """Positions of records whose names are not known yet, ascending."""
    holders = {clash.position for clash in clashes if clash.position is not None}
    return sorted({*targets, *holders} - own.names.keys())


def _encode_all(fates: Mapping[int, Sequence[messages.Fate]]) -> dict[int, bytes]:
    return {chunk: msgspec.msgpack.encode(list(own)) for chunk, own in fates.items()}


decode_fates = msgspec.msgpack.Decoder(list[messages.Fate]).decode


def _refs(snapshot: Snapshot, verdict: Verdict) -> list[RowRef]:
    return [snapshot.ref(one) for one in verdict.target[verdict.target >= 0].tolist()]


def _refusal(refused: int, job: Job) -> Conflict:
    verb = "has" if refused == 1 else "have"
    way_out = (
        "on conflict, skip leaves them out, and replace stores them in place of the records that"
        " have these values"
    )
    if job.options.on_conflict == "replace":
        way_out = (
            "these are of other rows, or of a record that they do not replace; correct the file,"
            " or skip invalid rows to leave them out"
        )
    return Conflict(
        f"{refused} of {job.total} records {verb} values that others have, so that nothing was"
        " stored",
        code="not_unique",
        hint=f"the job's errors list them; {way_out}",
    )
