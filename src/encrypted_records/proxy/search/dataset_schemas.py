"""The schemas of a dataset, as the API names them: which there are is its word alone."""

from __future__ import annotations

from encrypted_records.client.api import Api, SchemaResource
from encrypted_records.errors import ApiFailed, Malformed
from encrypted_records.model.ids import from_text


async def list_schemas(api: Api, dataset: bytes, auth: str) -> dict[bytes, SchemaResource]:
    """Those that the caller reaches, by id.

    Raises:
        ApiFailed: what the API calls an id is not one.
    """
    try:
        return {from_text(one.id): one for one in await api.schemas_of(dataset, auth)}
    except Malformed:
        raise ApiFailed("the API's answer names no schema") from None
