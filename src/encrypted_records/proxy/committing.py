"""Send drafted commits, and enter them into the ledgers they were drafted from."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from encrypted_records.client.api import Api
from encrypted_records.errors import ErsError, Unavailable
from encrypted_records.model.records import CommitUpload
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.schemas import Schemas, SchemaState

log = logging.getLogger(__name__)

#: How often a commit that lost a race is drafted again.
ATTEMPTS = 5
#: Conflicts with the state that a writer knew, and not with what it wants to do; the last one
#: says that this was done already.
LOST_RACES = frozenset(
    {"stale_definition", "writer_conflict", "log_conflict", "key_mismatch", "commit_reused"}
)


class Committer:
    def __init__(self, api: Api, schemas: Schemas) -> None:
        self._api = api
        self._schemas = schemas

    async def ready(self, caller: Caller, states: Sequence[SchemaState]) -> None:
        """Learn the outcome of earlier commits; the states' locks are held, here and until the
        commits that are drafted next are stored."""
        for state in states:
            if state.uncertain:
                await self._schemas.refresh(caller, state)

    async def store(
        self,
        caller: Caller,
        drafts: Sequence[tuple[SchemaState, CommitUpload]],
        *,
        staging: bytes | None = None,
    ) -> None:
        """Store commits, all or none.

        Args:
            staging: under which their rows and pages were stored ahead.

        Raises:
            Conflict: the state has moved on, or forbids it.
            Unavailable: with whether they were stored not known.
        """
        # Whatever interrupts this, the next one asks first whether the commits were stored.
        for state, _ in drafts:
            state.uncertain = True
        try:
            if staging is None:
                receipts = await self._api.commit([upload for _, upload in drafts], caller.auth)
            else:
                commits = [upload.commit for _, upload in drafts]
                receipts = await self._api.publish(staging, commits, caller.auth)
        except Unavailable as error:
            raise type(error)(
                f"{error.message}; whether the change was stored is not known",
                code=error.reason,
                retry_after=error.retry_after,
                hint="once the API answers again, look whether it was before repeating it",
            ) from None
        for receipt, (state, upload) in zip(receipts, drafts, strict=True):
            # They are stored by now, so that trouble from here on must not deny it.
            try:
                await self._schemas.settle(caller, state, upload, receipt)
                state.uncertain = False
            except ErsError as error:
                log.warning("a stored commit is not yet in the ledger: %s", error.message)
