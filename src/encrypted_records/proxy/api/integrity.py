"""Integrity: logs and rosters that lack entries which this proxy has seen, and remedies.

/api/schemas/<id>/: log/ and accept-log/ for the log, salvage/ for the records of a broken log, and
repair/ for the data that the API has lost of a schema, and for restoring it.

/api/organizations/<id>/rollback/: a roster that lacks entries which this proxy has seen.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.client.proxy import schema_logs as structs
from encrypted_records.client.proxy.keyring import Proof
from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.index.log.order import LogHead
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import record_formats
from encrypted_records.model import roster as form
from encrypted_records.model.ids import milliseconds, to_text
from encrypted_records.model.queries import refuse_unknown
from encrypted_records.model.roster import EntryBody
from encrypted_records.model.signatures import Withheld
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints, proven
from encrypted_records.proxy.api.parameters import id_in_path, number_of
from encrypted_records.proxy.http.messages import (
    Form,
    answer,
    form_of,
    json_line,
    read_object,
    shown_record,
)
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.differences import LogComparison
from encrypted_records.proxy.schemas.state import SoundPart
from encrypted_records.proxy.schemas.store import AcceptedHead
from encrypted_records.proxy.search.salvage import Salvage
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.sharing.reading import RosterComparison
from encrypted_records.proxy.write.repair import SchemaLoss

endpoint = Endpoints("schemas")


Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class LogAcceptance(msgspec.Struct, forbid_unknown_fields=True):
    """The head of a log that lacks commits, which the caller accepts."""

    version: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    digest: Digest
    forked: bool = False
    proof: Proof | None = None


@endpoint(
    "GET",
    "/api/schemas/{id}/log/",
    summary="Show how far the log is valid, compared with what this proxy has seen.",
    parameters=(
        spec.parameter("query", "version", spec.NUMBER, "Version whose digest is shown as well"),
    ),
    answers={200: spec.json_answer(structs.LogStanding)},
)
async def get_log(request: Request, services: Services, caller: Holder) -> Response:
    standing = await services.standings.of(caller, id_in_path(request))
    ledger, at = standing.sound.ledger, None
    if "version" in request.query_params:
        version = number_of(request, "version", 0, least=0, most=ledger.version)
        at = LogHead(version, ledger.digest_at(version) or b"")
    return answer(_log_standing(standing, at))


@endpoint.bare(
    "POST",
    "/api/schemas/{id}/accept-log/",
    summary="Accept, for the caller only, a log that lacks commits that this proxy has seen.",
    body=spec.json_body(LogAcceptance),
    answers={
        200: spec.json_answer(
            structs.LogStanding, description="The log is accepted; this is the earlier comparison"
        )
    },
)
async def accept_log(request: Request) -> Response:
    # An API that hides commits looks like an API that was restored: a stolen login is not enough.
    services, holder, acceptance = await proven(request, LogAcceptance)
    head = LogHead(acceptance.version, bytes.fromhex(acceptance.digest))
    schema = id_in_path(request)
    before = await services.standings.accept(holder, schema, head, forked=acceptance.forked)
    return answer(_log_standing(before))


def _wrong(detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery(detail, flaws=(Flaw("type", detail, pointer),))


def _log_standing(standing: LogComparison, at: LogHead | None = None) -> structs.LogStanding:
    sound = standing.sound
    head = sound.ledger.head
    return structs.LogStanding(
        state=standing.state,
        version=head.version,
        digest=head.digest.hex(),
        records=sound.ledger.snapshot().count,
        changed=_last_change(sound),
        seen=_head(sound.seen),
        common=standing.common,
        fault=_fault(sound),
        accepted=None if standing.accepted is None else _acceptance(standing.accepted),
        accepted_by_others=[_acceptance(other) for other in standing.others],
        at=_head(at),
    )


def _acceptance(accepted: AcceptedHead) -> structs.Acceptance:
    return structs.Acceptance(
        user=to_text(accepted.user),
        version=accepted.head.version,
        digest=accepted.head.digest.hex(),
        seen=structs.Head(accepted.seen.version, accepted.seen.digest.hex()),
        writer=accepted.writer,
        time=_moment(accepted.time),
    )


def _head(head: LogHead | None) -> structs.Head | None:
    return None if head is None else structs.Head(head.version, head.digest.hex())


def _fault(sound: SoundPart) -> structs.Fault | None:
    return None if sound.fault is None else structs.Fault(sound.fault.reason, sound.fault.message)


def _last_change(sound: SoundPart) -> str | None:
    if sound.newest is None:
        return None
    try:
        return _moment(milliseconds(sound.newest))
    except (OverflowError, ValueError):  # the writer's clock was wrong
        return None


def _moment(time: int) -> str:
    """Milliseconds since 1970 in RFC 3339 format."""
    moment = datetime.fromtimestamp(time / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- salvage -----------------------------------------------------------------------------------

#: Warnings about everything that the log does not prove.
_UNKNOWN = (
    "deleted records may be among these",
    "older versions of records may be among these",
    "records may be missing",
    "fields of a record may be missing",
    "records of jobs that were never completed may be among these",
)


@endpoint(
    "POST",
    "/api/schemas/{id}/salvage/",
    summary="Export every record that can be decrypted, whatever the state of the log.",
    body=spec.json_body(spec.object_of({}, **spec.FILE_FORM, ended=spec.FLAG)),
    answers={
        200: spec.answer_of_kinds(
            {spec.NDJSON: {}, spec.CSV: {}}, description="Every record that can be decrypted"
        )
    },
)
async def salvage_records(request: Request, services: Services, _caller: Holder) -> Response:
    schema = id_in_path(request)
    body = await read_object(request)
    form = form_of(request, body)
    refuse_unknown(body, {"ended"})
    ended = body.get("ended", True)
    if not isinstance(ended, bool):
        raise _wrong("expected true or false", "/ended")

    salvaged = await services.salvager.salvage(
        lambda: services.holder(request), schema, ended=ended
    )
    return form.download(_write(salvaged, schema, form))


async def _write(salvaged: Salvage, schema: bytes, form: Form) -> AsyncGenerator[bytes, None]:
    # A row that the log does not prove may lack a required field.
    columns = record_formats.CsvColumns.of(tuple(salvaged.definition.fields), (), safe=form.safe)
    if form.csv:
        yield columns.header(to_text(schema) if form.names_schema else None)
    async for batch in salvaged.batches:
        if form.csv:
            yield b"".join(columns.record(saved.record.data) for saved in batch)
            continue
        # An empty line, which readers skip, shows that the work continues.
        yield (
            b"\n"
            if not batch
            else b"".join(
                json_line(
                    msgspec.structs.asdict(shown_record(saved.record, schema, salvaged.definition))
                    | {"version": saved.record.version, "proven": saved.proven}
                )
                for saved in batch
            )
        )
    if not form.csv:
        yield json_line({"salvage": _report_json(salvaged)})


def _report_json(salvaged: Salvage) -> dict[str, Any]:
    sound, counts = salvaged.sound, salvaged.counts
    return {
        "version": sound.ledger.head.version,
        "digest": sound.ledger.head.digest.hex(),
        "fault": _fault(sound),
        "rows": counts.rows,
        "records": counts.records,
        "proven": counts.proven,
        "ended": counts.ended,
        "older": counts.older,
        "left_out": counts.left_out,
        "unopened": counts.unopened,
        "without_key": counts.without_key,
        "beyond": counts.beyond,
        "incomplete": counts.incomplete,
        "missing": counts.missing,
        "unknown": [] if sound.fault is None else list(_UNKNOWN),
    }


_MOST_LOST = 2**31
_REPAIR_PATH = "/api/schemas/{id}/repair/"
_CONFIRM = spec.parameter(
    "query", "confirm", spec.NUMBER, "Number of lost records that may be deleted"
)


@endpoint(
    "GET",
    _REPAIR_PATH,
    summary="Show what the API has lost of a schema: records, and segments of the index.",
    answers={200: spec.json_answer(structs.Loss)},
)
async def look_at_loss(request: Request, services: Services, caller: Holder) -> Response:
    return answer(_loss(await services.repairer.look(caller, id_in_path(request))))


@endpoint(
    "POST",
    _REPAIR_PATH,
    summary="Delete lost records, given their number, or rebuild one segment from rows.",
    parameters=(_CONFIRM,),
    answers={
        200: spec.json_answer(
            structs.Loss,
            description="The losses before this request; repeat it until nothing is left",
        )
    },
)
async def repair_schema(request: Request, services: Services, caller: Holder) -> Response:
    confirmed = number_of(request, "confirm", 0, least=0, most=_MOST_LOST)
    schema = id_in_path(request)
    return answer(_loss(await services.repairer.repair_next(caller, schema, confirmed)))


def _loss(loss: SchemaLoss) -> structs.Loss:
    return structs.Loss(loss.records, loss.segments, loss.rows, loss.nothing)


# --- rosters --------------------------------------------------------------------------------------

_ROLLBACK_PATH = "/api/organizations/{id}/rollback/"

people_endpoint = Endpoints("people")


class RosterAcceptance(msgspec.Struct, forbid_unknown_fields=True):
    """The head of a roster that lacks entries, which the caller accepts."""

    number: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    digest: Digest
    forked: bool = False
    proof: Proof | None = None


@people_endpoint(
    "GET",
    _ROLLBACK_PATH,
    summary="Compare the roster with what this proxy has seen of it, and show what is lost.",
    answers={200: spec.json_answer(structs.RosterStanding)},
)
async def get_rollback(request: Request, services: Services, holder: Holder) -> Response:
    return answer(_shown_standing(await services.sharing.rollbacks.of(holder, id_in_path(request))))


@people_endpoint.bare(
    "POST",
    _ROLLBACK_PATH,
    summary="Accept a roster that lacks entries that this proxy has seen.",
    body=spec.json_body(RosterAcceptance),
    answers={
        200: spec.json_answer(
            structs.RosterStanding,
            description="The roster is accepted; this is the earlier comparison",
        )
    },
)
async def accept_rollback(request: Request) -> Response:
    # A removed member may be a member again in the older roster.
    services, holder, acceptance = await proven(request, RosterAcceptance)
    before = await services.sharing.rollbacks.accept(
        holder,
        id_in_path(request),
        acceptance.number,
        bytes.fromhex(acceptance.digest),
        forked=acceptance.forked,
    )
    services.forget(holder.user)
    return answer(_shown_standing(before))


def _shown_standing(standing: RosterComparison) -> structs.RosterStanding:
    roster, seen = standing.roster, standing.seen
    return structs.RosterStanding(
        state=standing.state,
        number=roster.number,
        digest=(roster.digest_at(roster.number) or b"").hex(),
        members=len(roster.members()),
        seen=None if seen is None else structs.RosterHead(seen.number, seen.digest.hex()),
        common=standing.common,
        lost=[_lost_entry(roster, body) for body in standing.lost],
    )


def _lost_entry(roster: Roster, body: EntryBody) -> structs.LostEntry:
    subject, who = _subject_of(roster, body)
    return structs.LostEntry(
        body.number, _moment_of_entry(body.time), subject, who, _name(roster, body.actor)
    )


def _subject_of(roster: Roster, body: EntryBody) -> tuple[str, str | None]:
    """The kind of an entry, and its subject or object."""
    match body.content:
        case form.FoundingEntry(name=name):
            return "founded", _shown_name(name)
        case form.Invite(name=name):
            return "invited", _shown_name(name)
        case form.MemberStanding(name=name, member=uid):
            return "stood", _shown_name(name) or to_text(uid)
        case form.Remove(id=uid):
            return "removed", _name(roster, uid) or to_text(uid)
        case form.DatasetName(name=name, dataset=uid):
            return "dataset", _shown_name(name) or to_text(uid)
        case form.Listing(dataset=uid):
            named = roster.dataset(uid)
            return "dataset", to_text(uid) if named is None else _shown_name(named.name) or to_text(
                uid
            )
        case _:
            return "schema", None


def _shown_name(name: str) -> str | None:
    """A name, unless only an API token has read the entry, and was not shown the name."""
    return None if isinstance(name, Withheld) else name


def _name(roster: Roster, member: bytes) -> str | None:
    found = roster.member(member)
    return None if found is None else found.name


def _moment_of_entry(seconds: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # the actor's clock was wrong
        return None
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
