"""A schema as the API shows it, which proves nothing."""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.client.api import Api
from encrypted_records.errors import ApiFailed, BadInput
from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import by_size


@dataclass(frozen=True, slots=True)
class Shown:
    """``definition`` counts until the log has a commit, or the roster the schema."""

    organization: bytes
    dataset: bytes
    slug: str
    name: str
    definition: SchemaDefinition


async def read_shown(api: Api, caller: Holder, schema: bytes) -> Shown:
    """
    Raises:
        NotFound: the API knows no such schema, or not for this caller.
        ApiFailed: it is none of this version.
    """
    resource = await api.schema(schema, caller.auth)
    try:
        text = bytes(resource.schema)
        return Shown(
            ids.from_reference(resource.organization, "organizations", pointer="/organization"),
            ids.from_reference(resource.dataset, "datasets", pointer="/dataset"),
            resource.slug,
            resource.name,
            await by_size(len(text))(parse_definition, text),
        )
    except BadInput:
        raise ApiFailed("the API's answer holds no schema of this version") from None
