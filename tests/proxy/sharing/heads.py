"""Where logs stand, for proxies of tests that have no more than the flows of sharing."""

from __future__ import annotations

from itertools import takewhile

from encrypted_records.client.api import Api
from encrypted_records.client.transport import Transport
from encrypted_records.model import wire
from encrypted_records.model.roster import NO_DIGEST
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.settling import VerifiedHead


class ShownHeads:
    """What the API shows, unverified; and no memory."""

    def __init__(self, transport: Transport) -> None:
        self._api = Api(transport)

    async def read_before(self, holder: Holder, schema: bytes, epoch: int) -> VerifiedHead:
        deltas = await self._api.manifest(schema, 0, holder.auth)
        commits = [entry.commit for delta in deltas for entry in delta.entries]
        older = takewhile(lambda one: wire.decode_commit_body(one).key_version < epoch, commits)
        version, digest = 0, NO_DIGEST
        for commit in older:
            version, digest = version + 1, wire.next_log_digest(digest, commit)
        return VerifiedHead(version, digest)

    async def remembered(self, holder: Holder, schema: bytes) -> VerifiedHead | None:
        return None
