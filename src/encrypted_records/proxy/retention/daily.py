"""Carry out retention once a day, while somebody who may delete works with this proxy.

A proxy acts only with a caller's credentials. So the first search or change of a day in a schema
begins it, beside that request and with its credentials; what they do not allow is not done, and no
request waits for it or fails by it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from encrypted_records.errors import ErsError, NotAllowed
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.background import RETENTION, Background
from encrypted_records.proxy.retention.service import Retainer
from encrypted_records.proxy.schemas.state import SchemaState

log = logging.getLogger(__name__)


class DailyRetention:
    def __init__(self, retainer: Retainer, background: Background) -> None:
        self._retainer = retainer
        self._background = background

    def notice(self, caller: Holder, state: SchemaState) -> None:
        """Somebody works with a schema: carry its rule out, if it is the first time today."""
        definition = state.ledger.definition
        if definition is None or definition.retention is None:
            return
        reads = caller.token is not None and not caller.token.writes
        if caller.accepted or reads or not self._retainer.is_due(caller, state.id):
            return
        self._retainer.put_off(caller, state.id)
        # It opens the keyring that there is, and takes in no device with a new one.
        run = partial(self._run, replace(caller, newcomer=None), state.id)
        self._background.start(RETENTION, run)

    async def _run(self, caller: Holder, schema: bytes) -> None:
        try:
            done = await self._retainer.run(caller, schema)
        except NotAllowed as error:
            # A reader's: the first request of somebody who writes does it. An API that says so of a
            # writer wins a day, as it does by giving no answer.
            log.info("retention is left to others: %s", error.reason)
            self._retainer.put_off_to_tomorrow(caller, schema)
        except ErsError as error:
            log.warning("retention is not carried out: %s", error.message)
        else:
            if done.records:
                log.info("deleted %d records by retention", done.records)
            if done.held:
                log.warning(
                    "clock_jumped: retention holds %d records back: %s", done.held, done.doubt
                )
