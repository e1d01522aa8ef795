"""Change the definition of a schema that has records: by a commit, which its readers verify.

The API shows a definition, and its word for it does not count (docs/SPEC.md, section 7.4). So what
a caller sends to the API about a definition is committed here before it is sent on. A rule that
demands more is compared with what is stored, and its commit refused if a record came in between.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.errors import Conflict, Flaw, InvalidQuery, PreconditionFailed
from encrypted_records.model.definition import SchemaDefinition, with_ids_for_types
from encrypted_records.model.definition_changes import (
    Cost,
    DefinitionChange,
    list_changes,
    refuse_changes,
    refuse_reserved,
)
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import by_size
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.write.committer import ATTEMPTS, LOST_RACES, Committer
from encrypted_records.proxy.write.rule_proof import Obstacle, find_obstacles, total

log = logging.getLogger(__name__)

#: Seconds for which a definition that others overtake is compared again.
PATIENCE = 20.0
#: Seconds before each further time, once it was overtaken ``ATTEMPTS`` times.
PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class DefinitionPlan:
    """The cost of a new definition. ``seconds`` is how long it took to compare it with what is
    stored, at ``version`` of the log.
    """

    new: SchemaDefinition
    changes: list[DefinitionChange] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    records: int = 0
    seconds: float = 0.0
    version: int = 0
    #: the definition that it was made for to follow
    present: SchemaDefinition | None = None
    #: names of its fields whose values may be lost
    dropped: Collection[str] = ()

    @property
    def takes(self) -> str:
        """The most that any of the changes takes."""
        costs = {change.cost for change in self.changes}
        order = (Cost.RESEAL, Cost.PROOF, Cost.COMMIT)
        return next((cost.value for cost in order if cost in costs), "nothing")

    @property
    def needs_reseal(self) -> bool:
        return self.takes == Cost.RESEAL.value

    @property
    def target(self) -> SchemaDefinition:
        """The definition for which all records are sealed again."""
        assert self.present is not None
        return with_ids_for_types(self.new, self.present)


class DefinitionChanger:
    def __init__(
        self, api: Api, schemas: Schemas, committer: Committer, runner: QueryRunner
    ) -> None:
        self._api = api
        self._schemas = schemas
        self._committer = committer
        self._runner = runner

    async def has_log(self, user: bytes, schema: bytes, auth: str) -> bool:
        """Whether the schema has commits, as the API says or the user has seen; without one,
        anybody may define it."""
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
        """Find out what the definition would take; nothing is changed.

        Args:
            text: the definition as its owner sent it.
            renamed: names in it, and those that these fields have at present.
            dropped: names of present fields whose values may be lost.
            replaced: the definition that it was made of; None for whichever is present.

        Raises:
            InvalidDefinition: it is not one.
            InvalidQuery: names that there are not are renamed, or may be lost.
            PreconditionFailed: another definition than ``replaced`` is present.
            ErsError: as :meth:`QueryRunner.ask`.
        """
        sent, before = await _parse(text), await _parse(replaced)
        assert sent is not None
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
        """Commit a definition, unless it only differs in spelling from the present one.

        Args:
            text, renamed, replaced: as for :meth:`plan`.

        Raises:
            InvalidDefinition: the text is not a valid definition.
            PreconditionFailed: the present definition is not ``replaced``.
            Conflict: ``needs_reencryption``; stored records do not fit, or have to be re-encrypted.
            ErsError: as for :meth:`Committer.store`.
        """
        sent, before = await _parse(text), await _parse(replaced)
        assert sent is not None
        until = runtime.monotonic() + PATIENCE
        for attempt in itertools.count(1):
            plan = await self._plan(caller, schema, sent, renamed or {}, (), before)
            refuse(plan)
            try:
                await self._commit(caller, schema, plan)
            except Conflict as error:
                # Others store meanwhile, however often: it is compared with theirs, too.
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
            # Without one the verified log has no commit, and so no records that could break a rule.
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
        Conflict: ``log_conflict``; the definition, or records that it was compared with, are others
            by now.
    """
    follows = plan.new.follows(present) and list_changes(present, plan.new) == plan.changes
    if not follows or (exact and state.ledger.added_at > plan.version):
        raise Conflict("the schema changed while its definition was compared", code="log_conflict")


async def _parse(text: bytes | None) -> SchemaDefinition | None:
    return None if text is None else await by_size(len(text))(parse_definition, text)


def _require_present(
    present: SchemaDefinition, replaced: SchemaDefinition | None, sent: SchemaDefinition
) -> None:
    """
    Raises:
        PreconditionFailed: neither the definition that is replaced nor the one that was sent, as of
            a request that is repeated, is the present one.
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
        InvalidQuery: a name is of no field, or of two.
    """
    old = list(renamed.values())
    wrong = [
        name
        for name, before in renamed.items()
        if name not in sent.fields
        or before not in present.fields
        or old.count(before) > 1
        or (before in sent.fields and before not in renamed and before == name)
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
        InvalidQuery: a name is of no field: another one was meant.
    """
    wrong = [at for at, name in enumerate(dropped) if name not in present.fields]
    if wrong:
        detail = f"the schema has no such field; it has {', '.join(present.fields)}"
        raise InvalidQuery(
            "a field to be dropped is not a field of the schema",
            flaws=tuple(Flaw("unknown_field", detail, f"/drops/{at}") for at in wrong),
            hint="nothing was changed; correct the name",
        )
