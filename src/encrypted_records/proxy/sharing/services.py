"""Make a service: a program with a keyring of its own, of which one string is all there is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.keys import RootKey
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Share, Standing
from encrypted_records.model.service_key import KEY_BYTES, ServiceKey
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.changes import RosterChanges
from encrypted_records.proxy.sharing.drafts import Draft
from encrypted_records.proxy.sharing.grants import OwnGrants


@dataclass(frozen=True, slots=True)
class MadeService:
    """A service that was made now. The string is shown once, and is nowhere else."""

    id: bytes
    key: str = field(repr=False)
    expires: int


class ServiceMaking:
    def __init__(self, api: RosterApi, changes: RosterChanges, grants: OwnGrants) -> None:
        self._api = api
        self._changes = changes
        self._grants = grants

    async def make(
        self, holder: Holder, organization: bytes, name: str, shares: Sequence[Share], expires: int
    ) -> MadeService:
        """Make a service and let it in.

        Args:
            expires: in seconds since 1970; 0: never.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            ErsError: as :meth:`RosterChanges.change`. Without its entry a service reaches nothing.
        """
        await self._changes.change(holder, organization, _require_owner)
        secret = runtime.random_bytes(KEY_BYTES)
        root = RootKey(secret)
        service = root.service_id
        digest = hashlib.sha256(root.token(service)).hexdigest()
        until = datetime.fromtimestamp(expires, UTC).isoformat() if expires else None
        body = {
            "id": ids.to_text(service),
            "name": name,
            "token_digest": digest,
            "expires": until,
        }
        await self._api.make_service(organization, body, holder.auth)
        identity = root.identity(organization, service, 1)

        async def plan(draft: Draft) -> None:
            draft.require_owner()
            anchor = root.anchor(organization, service, 1).anchor(draft.roster.found)
            proof = identity.sign("keys", draft.roster.found, service, identity.keys, anchor)
            draft.sign(
                Standing(
                    service,
                    form.SERVICE,
                    form.MEMBER,
                    name,
                    identity.keys,
                    anchor,
                    proof,
                    b"",
                    expires,
                    list(shares),
                )
            )
            for dataset in {share.dataset for share in shares}:
                keys = await self._grants.whole(draft.view, dataset)
                draft.grant(service, dataset, keys)

        await self._changes.change(holder, organization, plan)
        return MadeService(service, ServiceKey(service, secret).text, expires)


async def _require_owner(draft: Draft) -> None:
    draft.require_owner()
