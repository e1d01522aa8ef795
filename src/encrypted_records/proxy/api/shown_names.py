"""Names of datasets and schemas in what the API shows: those that the roster has, and no others.

A client that finds something by a name takes its id, and stores into it. An API that swapped names
would have records stored into what others read. So each dataset and schema that was placed is shown
under its signed slug, name, dataset and organization, whatever the API calls it
(docs/http-api.md, People). What nobody has signed is the API's word, and is marked.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from encrypted_records.errors import BadInput, Malformed, NotAllowed, NotAuthenticated
from encrypted_records.model import ids
from encrypted_records.model.forwarded import SIGNED
from encrypted_records.proxy.api.incoming import refusal
from encrypted_records.proxy.services import services_of
from encrypted_records.proxy.sharing.shown_names import Shown, ShownAs

_Resource = dict[str, msgspec.Raw]


class _Named(msgspec.Struct):
    """Members that each dataset and schema has; ``dataset`` schemas alone."""

    id: str
    organization: str
    slug: str
    name: str
    dataset: str = ""


async def name_as_signed(request: Request, kind: str, body: bytes) -> bytes:
    """An answer of the API's with its datasets or schemas named as the roster does.

    Args:
        kind: "datasets" or "schemas".

    Raises:
        ApiFailed: it is not of the form.
        Refused, Unavailable: as :meth:`ShownNames.find`.
    """
    whole, listed = _read(body)
    if not listed:
        return body
    services = services_of(request)
    try:
        # Only looks: it does not make the proxy act for an owner.
        holder = await services.admission.holder(request)
    except (NotAuthenticated, NotAllowed):
        return body  # nor will they store anything here
    shown = [_shown(kind, one) for one in listed]
    asked = request.query_params
    found = await services.sharing.shown_names.find(
        holder,
        shown,
        everywhere="dataset" not in asked,
        by_names={asked[name] for name in ("slug", "name") if name in asked},
    )
    for one, named in zip(listed, found, strict=True):
        if named is not None:
            _name(one, named)
    if whole is None:
        return msgspec.json.encode(listed[0])
    return msgspec.json.encode(whole | {"results": listed})


def _read(body: bytes) -> tuple[dict[str, Any] | None, list[_Resource]]:
    """A list's other members, None of a single resource; and the resources."""
    try:
        whole = msgspec.json.decode(body, type=_Resource)
        if "results" not in whole:
            return None, [whole]
        return dict(whole), msgspec.json.decode(whole["results"], type=list[_Resource])
    except msgspec.DecodeError:
        raise refusal("it is no dataset or schema") from None


def _shown(kind: str, resource: _Resource) -> Shown:
    try:
        one = msgspec.convert(
            {
                name: msgspec.json.decode(resource[name])
                for name in _Named.__struct_fields__
                if name in resource
            },
            _Named,
        )
        return Shown(
            ids.from_text(one.id),
            ids.from_reference(one.organization, "organizations", pointer=""),
            one.slug,
            one.name,
            ids.from_reference(one.dataset, "datasets", pointer="") if kind == "schemas" else None,
        )
    except (msgspec.MsgspecError, Malformed, BadInput):
        raise refusal("it is no dataset or schema") from None


def _name(resource: _Resource, named: ShownAs) -> None:
    told: dict[str, Any] = {SIGNED: named.signed}
    if named.signed:
        one = named.shown
        told |= {
            "organization": ids.reference("organizations", one.organization),
            "slug": one.slug,
            "name": one.name,
        }
        if one.dataset is not None:
            told["dataset"] = ids.reference("datasets", one.dataset)
    resource.update({name: msgspec.Raw(msgspec.json.encode(one)) for name, one in told.items()})
