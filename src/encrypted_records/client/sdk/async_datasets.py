"""Datasets: :class:`AsyncDataset`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from encrypted_records.client.proxy.records import FoundIn
from encrypted_records.client.sdk.async_jobs import AsyncJob
from encrypted_records.client.sdk.async_named import AsyncNamed
from encrypted_records.client.sdk.async_schemas import AsyncSchema
from encrypted_records.client.sdk.condition_language import Where, condition


class AsyncDataset(AsyncNamed):
    async def schemas(self) -> AsyncIterator[AsyncSchema]:
        async for one in self._link.proxy.listing("schemas", dataset=self.id):
            yield AsyncSchema(self._link, one)

    async def search(self, where: Where = None, *, limit: int = 10) -> list[FoundIn]:
        """One condition, asked of each schema that has its fields: counts, and first records.

        Args:
            where: see :data:`Where`; None selects all. It compares with no other schema.
            limit: records shown of each schema, up to 100.
        """
        return await self._link.proxy.search_dataset(self.url, condition(where), limit=limit)

    async def create_schema(
        self,
        name: str,
        definition: Mapping[str, Any],
        *,
        slug: str | None = None,
        description: str | None = None,
        get_or_create: bool = False,
    ) -> AsyncSchema:
        """A new schema; ``definition`` is its JSON Schema, as docs/http-api.md describes it.

        Args:
            get_or_create: take the schema of this dataset that has this slug or name, if there is
                one.

        Raises:
            Conflict: ``slug_taken``; there is a schema of this name, or slug, in the dataset
                already. ``other_definition``; the one that is there has another definition.
        """
        there = await self._link.names.existing(
            "schemas",
            {"dataset": self.id},
            name,
            slug,
            wanted=get_or_create,
            definition=definition,
        )
        if there is not None:
            return AsyncSchema(self._link, there)
        resource = await self._link.proxy.create(
            "schemas",
            name=name,
            dataset=self.url,
            schema=definition,
            slug=slug,
            description=description,
        )
        return AsyncSchema(self._link, resource)

    async def reseal(self, *, forget: bool = False, progress: bool = False) -> dict[str, Any]:
        """Seal all records of its schemas again, where something of them is under an older key than
        the present one, each schema by a job; which keys are needed then, as docs/http-api.md has
        it. An owner's.

        Args:
            forget: have grants lack all older keys from then on, once nothing is left that they
                open. Who kept an older grant and an older copy of the data still opens that copy.
            progress: show a bar on a terminal.

        Raises:
            Conflict: ``reseal_under_way``, ``epoch_in_use``, ``nothing_to_forget``; what was done
                before stays done, and it can be repeated.
            NotAllowed: ``owners_only``.
        """
        keys = await self._link.proxy.look_at_keys(self.url)
        for one in keys["schemas"]:
            if not one["present"]:
                job = AsyncJob(self._link, await self._link.proxy.reseal_schema(one["schema"]))
                await job.wait(progress=progress)
        if forget:
            return await self._link.proxy.forget_keys(self.url)
        return await self._link.proxy.look_at_keys(self.url)

    async def erase(
        self, field: str, value: object, *, confirm: int | None = None
    ) -> dict[str, Any]:
        """Delete every record of its schemas with this value, have the bytes go, and wait; the
        receipt, which holds no value.

        Args:
            confirm: how many there have to be; without it nothing is deleted, and the error
                ``confirm_count`` says how many there are.
        """
        return await self._link.proxy.erase_subject(self.url, field, value, confirm=confirm)
