"""Records that are deleted and erased: from the database, the index, and what the proxy keeps.

Records that go by the retention of their schema's definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from encrypted_records import runtime
from encrypted_records.client.proxy.connection import Connection, encode
from encrypted_records.errors import ErsError
from encrypted_records.model import strict_json
from encrypted_records.model.ids import reference

#: The index is merged first, and of 2**24 records that takes minutes on a slow machine.
ERASE_SECONDS = 3600.0
#: For how long bytes that are not gone yet are waited for, and between two looks.
WAIT_SECONDS, LOOK_SECONDS, MOST_LOOK_SECONDS = 300.0, 0.5, 5.0
_JSON = {"Content-Type": "application/json"}


class Erasures(Connection):
    async def erasure_cost(self, record_id: str) -> list[dict[str, Any]]:
        """The cost of erasing a record: of its schema, how many segments with how many rows of
        the index are written again. Nothing is changed."""
        path = reference("records", record_id)
        found = await self._ask("DELETE", path, params={"erase": "true", "dry_run": "true"})
        costs: list[dict[str, Any]] = found["costs"]
        return costs

    async def erase_record(self, record_id: str) -> dict[str, Any]:
        """Delete a record and erase it; the receipt, as docs/http-api.md has it."""
        return await self._erase("DELETE", reference("records", record_id), {"erase": "true"})

    async def erase_schema(self, schema: str) -> dict[str, Any]:
        """Erase all that was deleted or changed of a schema, named by its path; the receipt."""
        return await self._erase("POST", f"{schema}erasure/", {})

    async def look_at_erasure(self, schema: str, *, counts: bool = True) -> dict[str, Any]:
        """Remains of records that were deleted or changed.

        Args:
            counts: whether to count it; without, the answer is only how far the API is.
        """
        params = None if counts else {"counts": "false"}
        found: dict[str, Any] = await self._ask("GET", f"{schema}erasure/", params=params)
        return found

    async def erase_subject(
        self, dataset: str, field: str, value: object, *, confirm: int | None = None
    ) -> dict[str, Any]:
        """Delete and erase every record of a dataset with a value; the receipt.

        Args:
            dataset: its path.
            confirm: how many there have to be.

        Raises:
            Conflict: ``confirm_count``; there are others, as many as the message says.
        """
        params = {} if confirm is None else {"confirm": str(confirm)}
        body = {"field": field, "value": value}
        return await self._erase("POST", f"{dataset}erase/", params, body)

    async def count_subject(self, dataset: str, field: str, value: object) -> dict[str, Any]:
        """The number of records that :meth:`erase_subject` would delete, in total and for each
        schema.
        """
        found: dict[str, Any] = await self._ask(
            "POST",
            f"{dataset}erase/",
            {"field": field, "value": value},
            params={"dry_run": "true"},
            repeatable=True,
        )
        return found

    async def look_at_keys(self, dataset: str) -> dict[str, Any]:
        """The epochs of a dataset's keys, and the schemas with records under older epochs, as
        docs/http-api.md describes them. Nothing is changed.

        Args:
            dataset: its path.

        Raises:
            NotAllowed: ``owners_only``.
        """
        found: dict[str, Any] = await self._ask(
            "POST", f"{dataset}forget/", {"dry_run": True}, repeatable=True
        )
        return found

    async def forget_keys(self, dataset: str) -> dict[str, Any]:
        """Forget a dataset's older keys, and wait until what was sealed again is erased; as
        :meth:`look_at_keys` afterwards.

        ``forgotten`` is false where something is not erased after five minutes: it goes by itself,
        and this can be repeated then.

        Raises:
            Conflict: ``epoch_in_use``; something is sealed under an older key, or is read.
                ``nothing_to_forget``, ``epoch_moved``.
            NotAllowed: ``owners_only``.
        """
        until, pause = runtime.monotonic() + WAIT_SECONDS, LOOK_SECONDS
        while True:
            answer = await self._transport.request(
                "POST", f"{dataset}forget/", data=encode({}), headers=_JSON, timeout=ERASE_SECONDS
            )
            found: dict[str, Any] = strict_json.loads(answer.body)
            if found["forgotten"] or runtime.monotonic() >= until:
                return found
            await runtime.sleep(pause)
            pause = min(pause * 1.5, MOST_LOOK_SECONDS)

    async def _erase(
        self, method: str, path: str, params: Mapping[str, str], body: Any = None
    ) -> dict[str, Any]:
        answer = await self._transport.request(
            method,
            path,
            data=None if body is None else encode(body),
            headers={} if body is None else _JSON,
            params=params,
            timeout=ERASE_SECONDS,
        )
        receipt: dict[str, Any] = strict_json.loads(answer.body)
        await self._see_through(receipt)
        return receipt

    async def _see_through(self, receipt: dict[str, Any]) -> None:
        """Wait until the data of a receipt is erased, except data under holds, and record that in
        the receipt. The proxy itself waits for less time than the timeouts of front-end servers.
        """
        until, pause = runtime.monotonic() + WAIT_SECONDS, LOOK_SECONDS
        for schema in receipt.get("schemas", []):
            while (
                not schema["gone"] and not schema["left"]["holds"] and runtime.monotonic() < until
            ):
                await runtime.sleep(pause)
                pause = min(pause * 1.5, MOST_LOOK_SECONDS)
                try:
                    looked = await self.look_at_erasure(schema["schema"], counts=False)
                    if looked["api"]["done"] >= schema["version"] or looked["api"]["holds"]:
                        schema["left"] = (await self.look_at_erasure(schema["schema"]))["api"]
                        schema["gone"] = schema["left"]["done"] >= schema["version"]
                except ErsError:
                    # What was deleted is deleted: the receipt says so, and that it was not gone.
                    break
        if "gone" in receipt:
            receipt["gone"] = all(schema["gone"] for schema in receipt["schemas"])


#: Ids of all records are read the first time, and many may be deleted.
RETENTION_SECONDS = 900.0


class Retentions(Connection):
    async def look_at_retention(self, schema: str) -> dict[str, Any]:
        """The number of ``records`` of a schema, named by its path, whose retention period has
        ended: those from days before ``before``. ``retention`` is the rule, None if there is none.
        ``held`` counts further records that are kept because the proxy's clock jumped ahead;
        ``doubt`` gives the reason.
        """
        return await self._retention("GET", schema)

    async def carry_out_retention(
        self, schema: str, *, clock_is_right: bool = False
    ) -> dict[str, Any]:
        """Delete the records that are old enough; how many were ``deleted``, and how many are
        ``held`` back, because the proxy's clock went ahead; ``doubt`` says why.

        Args:
            clock_is_right: delete those too: the clock is right.

        Raises:
            Conflict: ``no_retention``, ``clock_wrong``; nothing was deleted.
            NotAllowed: ``not_writer``.
        """
        return await self._retention(
            "POST", schema, {"clock_is_right": "true"} if clock_is_right else {}
        )

    async def _retention(
        self, method: str, schema: str, params: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, Any]:
        answer = await self._transport.request(
            method, f"{schema}retention/", params=params, timeout=RETENTION_SECONDS
        )
        found: dict[str, Any] = strict_json.loads(answer.body)
        return found
