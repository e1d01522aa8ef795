"""/api/organizations/<id>/rollback/: a roster that lacks what this proxy has seen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records.client.proxy.devices import Proof
from encrypted_records.client.proxy.schema_logs import LostEntry, RosterHead, RosterStanding
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.ids import to_text
from encrypted_records.model.roster import EntryBody
from encrypted_records.model.signatures import Withheld
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import json_answer, json_body
from encrypted_records.proxy.api.parameters import id_in_path
from encrypted_records.proxy.http.messages import answer, read_struct
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.sharing.rollback import RosterComparison

_PATH = "/api/organizations/{id}/rollback/"

endpoint = Endpoints("people")


class RosterAcceptance(msgspec.Struct, forbid_unknown_fields=True):
    """The head of a roster that lacks entries, which the caller accepts."""

    number: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    forked: bool = False
    proof: Proof | None = None


@endpoint(
    "GET",
    _PATH,
    summary="Compare the roster with what this proxy has seen of it, and show what is lost.",
    answers={200: json_answer(RosterStanding)},
)
async def get_rollback(request: Request) -> Response:
    services = services_of(request)
    holder = await services.holder(request)
    return answer(_shown_standing(await services.sharing.rollbacks.of(holder, id_in_path(request))))


@endpoint(
    "POST",
    _PATH,
    summary="Accept a roster that lacks entries that this proxy has seen.",
    body=json_body(RosterAcceptance),
    answers={
        200: json_answer(
            RosterStanding, description="The roster is accepted; this is the earlier comparison"
        )
    },
)
async def accept_rollback(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    asked = await read_struct(request, RosterAcceptance)
    # Somebody who was removed may stand again.
    holder = await services.proofs.demand(request, asked.proof)
    before = await services.sharing.rollbacks.accept(
        holder,
        id_in_path(request),
        asked.number,
        bytes.fromhex(asked.digest),
        forked=asked.forked,
    )
    services.forget(holder.user)
    return answer(_shown_standing(before))


def _shown_standing(standing: RosterComparison) -> RosterStanding:
    roster, seen = standing.roster, standing.seen
    return RosterStanding(
        state=standing.state,
        number=roster.number,
        digest=(roster.digest_at(roster.number) or b"").hex(),
        members=len(roster.members()),
        seen=None if seen is None else RosterHead(seen.number, seen.digest.hex()),
        common=standing.common,
        lost=[_lost_entry(roster, body) for body in standing.lost],
    )


def _lost_entry(roster: Roster, body: EntryBody) -> LostEntry:
    what, who = _said(roster, body)
    return LostEntry(body.number, _moment(body.time), what, who, _name(roster, body.actor))


def _said(roster: Roster, body: EntryBody) -> tuple[str, str | None]:
    """The kind of an entry, and its subject or object."""
    match body.content:
        case form.FoundingEntry(name=name):
            return "founded", _shown(name)
        case form.Invite(name=name):
            return "invited", _shown(name)
        case form.MemberStanding(name=name, member=uid):
            return "stood", _shown(name) or to_text(uid)
        case form.Remove(id=uid):
            return "removed", _name(roster, uid) or to_text(uid)
        case form.DatasetName(name=name, dataset=uid):
            return "dataset", _shown(name) or to_text(uid)
        case form.Listing(dataset=uid):
            named = roster.dataset(uid)
            return "dataset", to_text(uid) if named is None else _shown(named.name) or to_text(uid)
        case _:
            return "schema", None


def _shown(name: str) -> str | None:
    """A name, unless an API token alone has read the entry, and was not shown it."""
    return None if isinstance(name, Withheld) else name


def _name(roster: Roster, member: bytes) -> str | None:
    found = roster.member(member)
    return None if found is None else found.name


def _moment(seconds: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # its actor had no clock
        return None
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
