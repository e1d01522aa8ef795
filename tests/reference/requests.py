"""Section 15.11: requests for access, made and judged."""

from __future__ import annotations

from typing import Any

from tests.reference import Refused
from tests.reference.identity import Identity, is_signed, sign
from tests.reference.msgpack import pack, unpack
from tests.reference.roster import ALL, Roster, State

DAY = 86_400
#: A body as the specification lists it.
Body = list[Any]
Request = tuple[bytes, bytes]


def make(body: Body, signer: Identity) -> Request:
    """The request: body and signature."""
    encoded = pack(body)
    return encoded, sign(signer.sign, "request", encoded)


def read(encoded: bytes) -> Body:
    try:
        body = unpack(encoded)
    except ValueError:
        raise Refused("malformed_frame") from None
    if isinstance(body, list) and body and isinstance(body[0], int) and body[0] > 1:
        raise Refused("unsupported")
    sizes = [None, 16, 16, 16, None, None, 32, None]
    if not isinstance(body, list) or len(body) != len(sizes) or body[0] != 1:
        raise Refused("malformed_frame")
    for part, size in zip(body, sizes, strict=True):
        if size is None:
            if not isinstance(part, int) or isinstance(part, bool) or part < 0:
                raise Refused("malformed_frame")
        elif not isinstance(part, bytes) or len(part) != size:
            raise Refused("malformed_frame")
    if body[4] not in (1, 2) or not 1 <= body[5] < 2**32 or body[7] >= 2**63:
        raise Refused("malformed_frame")
    return body


def fault(roster: Roster, request: Request, now: int) -> str | None:
    """Why a request does not stand behind the roster's newest entry; None where it does."""
    encoded, signature = request
    _, organization, dataset, member, right, number, digest, time = read(encoded)
    state = roster.states[-1]
    it = state.members.get(member)
    if organization != roster.organization or it is None or not it["present"]:
        return "member"
    if it["type"] != 1 or it["role"] == 1:
        return "member"
    if not is_signed(it["keys"][1:33], "request", encoded, signature):
        return "signature"
    if number >= len(roster.digests) or roster.digests[number] != digest:
        return "roster"
    if not state.listed(dataset) or state.listed(dataset) > number:
        return "listed"
    if now < time - DAY or now >= time + 30 * DAY:
        return "over"
    has = {repr(_had(one, member, dataset)) for one in roster.states[number:]}
    if len(has) > 1 or _had(roster.states[number], member, dataset) is None:
        return "over"
    return "right" if state.may(member, dataset, write=right == 1) == ALL else None


def _had(state: State, member: bytes, dataset: bytes) -> Any:
    """The keys of a member, and what the member has of a dataset; None of who is not in."""
    it = state.members.get(member)
    if it is None or not it["present"]:
        return None
    of_it = [share for share in it["shares"] if share[0] == dataset]
    shares = sorted([right, sorted(schemas)] for _, right, schemas in of_it)
    return it["keys"], it["role"], shares
