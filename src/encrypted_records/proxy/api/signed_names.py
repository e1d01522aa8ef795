"""Changes of what the roster has, which callers send to be handed on: they are signed here first.

The API refuses them as ``through_a_proxy`` unless an entry of the roster says the same. So a change
is sent on as it came, and where it meets that, it is signed and sent again: a user without
a roster pays nothing, and needs no keyring.

Names of datasets and schemas in what the API shows: those that the roster has, and no others.

A client that finds something by a name takes its id, and stores into it. An API that swapped names
would have records stored into what others read. So each dataset and schema that was placed is shown
under its signed slug, name, dataset and organization, whatever the API calls it
(docs/http-api.md, People). Names that nobody has signed are the API's word, and are marked.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from encrypted_records.client.rosters import DatasetResource, ListedSchema
from encrypted_records.errors import BadInput, ErsError, Malformed, NotAllowed, NotAuthenticated
from encrypted_records.model import credentials, ids
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.forwarded import SIGNED
from encrypted_records.model.ids import from_path
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.api.incoming import refusal
from encrypted_records.proxy.api.token_uses import require_writing
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import by_size
from encrypted_records.proxy.services import Services, services_of
from encrypted_records.proxy.sharing.naming import WantedNames
from encrypted_records.proxy.sharing.shown_names import ShownAs, ShownName

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SignedChange:
    """A change whose entries are in the roster. ``before`` and ``after`` are what a schema without
    records is placed as, once the API has answered; None where it stays placed."""

    services: Services
    holder: Holder
    organization: bytes
    before: Placement | None = None
    after: Placement | None = None

    async def finish(self, *, taken: bool) -> None:
        """Place a schema whose name was freed; ``taken`` says whether the API took the change.

        Raises:
            ErsError: as :meth:`Founding.place`; the next owner who stores into it places it.
        """
        placement = self.after if taken else self.before
        if placement is not None:
            await self.services.sharing.founding.place(self.holder, self.organization, [placement])
            self.services.schemas.forget(self.holder, [placement.schema])


async def sign_change(request: Request, path: str, body: bytes) -> SignedChange:
    """Sign what a change of a dataset or schema says, so that the API takes it.

    Args:
        path: of the dataset or schema.
        body: a JSON object, as it is sent on.

    Raises:
        ErsError: it is not signed, and must not be sent on.
    """
    services = services_of(request)
    holder = await services.holder(request)
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    names = WantedNames(_text(members, "slug"), _text(members, "name"))
    resource = from_path(path.split("/")[3])
    if path.split("/")[2] == "datasets":
        dataset = await services.sharing.api.dataset(resource, holder.auth)
        organization = _organization(dataset)
        await services.sharing.naming.name_dataset(holder, organization, resource, names)
        return SignedChange(services, holder, organization)
    schema = await services.sharing.api.schema(resource, holder.auth)
    organization, text = _organization(schema), members.get("schema")
    await services.sharing.naming.name_schema(holder, organization, resource, names)
    if text is None or schema.key_version is not None:
        return SignedChange(services, holder, organization)
    # Its word that there are no records does not free the name under which others look for them.
    if (await services.schemas.refresh(holder, resource)).ledger.version:
        return SignedChange(services, holder, organization)
    definition = await by_size(len(text))(parse_definition, bytes(text))
    before = await services.sharing.naming.free_schema(holder, organization, resource)
    if before is None:
        return SignedChange(services, holder, organization)
    after = replace(before, definition=definition.digest)
    return SignedChange(services, holder, organization, before, after)


async def free_name(request: Request, path: str) -> None:
    """Free the name of a dataset or schema that the API has deleted by this request: it is no place
    any more where others look for records. Where that fails the deletion stands, and a repetition
    of the request frees it.

    Args:
        path: of the dataset or schema.
    """
    services = services_of(request)
    sharing, resource = services.sharing, from_path(path.split("/")[3])
    try:
        require_writing(credentials.api_token_of(request.headers.get("authorization", "")))
        holder = await services.holder(request)
        if path.split("/")[2] == "schemas":
            view = await sharing.finder.of_schema(holder, resource)
            schemas, dataset = [resource], None
        else:
            view = await sharing.finder.of_dataset(holder, resource)
            placed = [] if view is None else view.roster.schemas(resource)
            schemas, dataset = [each.schema for each in placed], resource
        if view is not None:
            await sharing.naming.free_deleted(holder, view.organization, schemas, dataset)
    except ErsError as error:
        log.warning("a deleted resource keeps its name in the roster: %s", error.reason)


def _organization(shown: DatasetResource | ListedSchema) -> bytes:
    return ids.from_reference(shown.organization, "organizations", pointer="/organization")


def _text(members: dict[str, Any], name: str) -> str | None:
    """A member that is text; whatever else it is, the API refuses."""
    try:
        return msgspec.json.decode(members[name], type=str) if name in members else None
    except msgspec.ValidationError:
        return None


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
    shown = [_shown(kind, name) for name in listed]
    asked = request.query_params
    found = await services.sharing.shown_names.find(
        holder,
        shown,
        everywhere="dataset" not in asked,
        by_names={asked[name] for name in ("slug", "name") if name in asked},
    )
    for resource, named in zip(listed, found, strict=True):
        if named is not None:
            _name(resource, named)
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
        raise refusal("it is not a dataset or schema") from None


def _shown(kind: str, resource: _Resource) -> ShownName:
    try:
        shown = msgspec.convert(
            {
                name: msgspec.json.decode(resource[name])
                for name in _Named.__struct_fields__
                if name in resource
            },
            _Named,
        )
        return ShownName(
            ids.from_text(shown.id),
            ids.from_reference(shown.organization, "organizations", pointer=""),
            shown.slug,
            shown.name,
            ids.from_reference(shown.dataset, "datasets", pointer="")
            if kind == "schemas"
            else None,
        )
    except (msgspec.MsgspecError, Malformed, BadInput):
        raise refusal("it is not a dataset or schema") from None


def _name(resource: _Resource, named: ShownAs) -> None:
    told: dict[str, Any] = {SIGNED: named.signed}
    if named.signed:
        shown = named.shown
        told |= {
            "organization": ids.reference("organizations", shown.organization),
            "slug": shown.slug,
            "name": shown.name,
        }
        if shown.dataset is not None:
            told["dataset"] = ids.reference("datasets", shown.dataset)
    resource.update({name: msgspec.Raw(msgspec.json.encode(value)) for name, value in told.items()})
