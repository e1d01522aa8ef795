"""Requests for access: make one, and find those that stand (docs/SPEC.md, section 15.11).

The API hands them out, and is believed in nothing: it cannot make one, and of what it shows again,
twice or in another order, the newest of each member and dataset counts, where it still stands. What
it hides is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from encrypted_records.crypto.identity import Identity
from encrypted_records.errors import Malformed, Unsupported
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.roster import AccessRequest, AccessRequestBody
from encrypted_records.rules.roster_judging import RequestFault

#: Nobody whose request this is has made it so.
_FORGED = (RequestFault.SIGNATURE, RequestFault.ROSTER)


@dataclass(frozen=True, slots=True)
class StandingRequest:
    """A request that its member has signed, and that still stands.

    ``declined`` is when an owner declined it, in seconds since 1970, by the API's word; 0 before.
    """

    body: AccessRequestBody
    declined: int


@dataclass(frozen=True, slots=True)
class ReadRequests:
    """Requests that stand, the oldest first; and how many were shown that no member of the roster
    has signed.
    """

    standing: list[StandingRequest]
    forged: int = 0


def make_request(
    roster: Roster, identity: Identity, member: bytes, dataset: bytes, right: int, now: int
) -> AccessRequest:
    """A request of ``member`` for all of a dataset, behind the roster's newest entry.

    Args:
        identity: that of ``member``.
        now: in seconds since 1970.
    """
    body = AccessRequestBody(
        form.FORMAT,
        roster.organization,
        dataset,
        member,
        form.WRITER if right == form.WRITER else form.READER,
        roster.number,
        roster.head.digest,
        now,
    )
    encoded = form.encode_request_body(body)
    return AccessRequest(encoded, identity.sign("request", encoded), 0)


def read_requests(roster: Roster, shown: Iterable[AccessRequest], now: int) -> ReadRequests:
    """Those of the requests that stand, one of each member and dataset."""
    newest: dict[tuple[bytes, bytes], StandingRequest] = {}
    forged = 0
    for request in shown:
        try:
            body = form.read_request(request)
        except (Malformed, Unsupported):
            forged += 1
            continue
        fault = roster.judge_request(request, body, now)
        forged += fault in _FORGED
        if fault is not None:
            continue
        key = body.member, body.dataset
        known = newest.get(key)
        if known is None or (known.body.time, known.body.number) < (body.time, body.number):
            newest[key] = StandingRequest(body, request.declined)
    found = sorted(newest.values(), key=lambda request: (request.body.time, request.body.member))
    return ReadRequests(found, forged)
