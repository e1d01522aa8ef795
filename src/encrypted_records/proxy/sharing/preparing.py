"""Preparations of a share, before it can be signed: a roster, keys of the dataset, schemas in
place.

An owner alone notices no step: what was made at the API, has no records and was never placed is
signed as the API shows it, by the request that shares it by name (docs/LEAKAGE.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.client.rosters import RosterApi
from encrypted_records.errors import BadInput
from encrypted_records.model import ids
from encrypted_records.model.roster import Placement, Share
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.founding import Founding, placement_of
from encrypted_records.proxy.sharing.reading import View


async def prepare_shares(
    api: RosterApi,
    founding: Founding,
    holder: Holder,
    organization: bytes,
    name: str,
    shares: Sequence[Share],
) -> View:
    """Found the organization where it has no roster, begin keys, and place schemas.

    Args:
        name: the user's e-mail address.

    Raises:
        BadInput: a share names what is not the organization's.
        NotAllowed: ``owners_only``, ``not_admitted``.
        ErsError: as of the flows.
    """
    view = await founding.found(holder, organization, name)
    for dataset in dict.fromkeys(share.dataset for share in shares):
        if view.roster.epoch(dataset) is not None:
            continue
        shown = await api.dataset(dataset, holder.auth)
        own = ids.from_reference(shown.organization, "organizations", pointer="/organization")
        if own != organization:
            raise BadInput("a share names a dataset of another organization")
        await founding.begin_dataset(
            holder, organization, dataset, slug=shown.slug, name=shown.name
        )
    wanted: list[Placement] = []
    for share in shares:
        for schema in share.schemas:
            placed = view.roster.schema(schema)
            if placed is None:
                placement = await placement_of(api, holder, schema)
            elif placed.dataset != share.dataset:
                placement = None
            else:
                continue
            if placement is None or placement.dataset != share.dataset:
                raise BadInput("a share names a schema of another dataset")
            wanted.append(placement)
    if wanted:
        await founding.place(holder, organization, wanted)
    return view
