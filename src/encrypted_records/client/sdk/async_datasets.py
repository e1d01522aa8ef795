"""Datasets: :class:`AsyncDataset`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from encrypted_records.client.proxy.records import FoundIn
from encrypted_records.client.sdk.async_jobs import AsyncJob
from encrypted_records.client.sdk.async_named import AsyncNamed
from encrypted_records.client.sdk.async_schemas import AsyncImportedFile, AsyncSchema
from encrypted_records.client.sdk.condition_language import Where, condition
from encrypted_records.client.sdk.file_readings import in_words_of_python, path_of, reading_of
from encrypted_records.client.sdk.proposal import proposal_of
from encrypted_records.client.sdk.rows import Frame
from encrypted_records.errors import Conflict, ReadingRefused


class AsyncDataset(AsyncNamed):
    async def schemas(self) -> AsyncIterator[AsyncSchema]:
        async for schema in self._link.proxy.listing("schemas", dataset=self.id):
            yield AsyncSchema(self._link, schema)

    async def search(self, where: Where = None, *, limit: int = 10) -> list[FoundIn]:
        """Search every schema of the dataset that has the condition's fields: counts, and first
        records.

        Args:
            where: see :data:`Where`; None selects all. The condition cannot refer to other schemas.
            limit: maximum number of records for each schema, up to 100.
        """
        return await self._link.proxy.search_dataset(self.url, condition(where), limit=limit)

    async def create_schema(
        self,
        name: str,
        definition: Mapping[str, Any] | Frame | type,
        *,
        slug: str | None = None,
        description: str | None = None,
        get_or_create: bool = False,
    ) -> AsyncSchema:
        """Create a schema. The ``notes`` of a proposed definition say what is worth a look.

        Args:
            definition: its JSON Schema, as docs/http-api.md describes it; or a frame of pandas,
                Polars or Arrow, a dataclass, ``msgspec.Struct``, Pydantic model or ``TypedDict``,
                whose types the fields get.
            get_or_create: take the schema of this dataset that has this slug or name, if there is
                one.

        Raises:
            Conflict: ``slug_taken``; there is a schema of this name, or slug, in the dataset
                already. ``other_definition``; the one that is there has another definition.
            InvalidSetting: a column or a member has values that cannot be stored.
        """
        proposal = proposal_of(definition)
        there = await self._link.names.existing(
            "schemas",
            {"dataset": self.id},
            name,
            slug,
            wanted=get_or_create,
            definition=proposal.definition,
        )
        if there is not None:
            return AsyncSchema(self._link, there, proposal.notes)
        resource = await self._link.proxy.create(
            "schemas",
            name=name,
            dataset=self.url,
            schema=proposal.definition,
            slug=slug,
            description=description,
        )
        return AsyncSchema(self._link, resource, proposal.notes)

    async def import_file(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        reading: Mapping[str, Any] | None = None,
        tight: bool = False,
        skip_invalid: bool = False,
        progress: bool = False,
    ) -> AsyncImportedFile:
        """A new schema of a file as people have it, of CSV in whatever form, JSON or a workbook,
        with all its rows; as ``ers import`` makes one. The reading is kept for the next file, which
        ``schema.import_file`` takes.

        The file's form is detected. An error asks what the file leaves open, and nothing is made
        before that is answered.

        Args:
            name: of the schema; the file's if left out.
            reading: what is known of the file, such as ``{"delimiter": ";", "decimal": ","}`` or
                ``{"columns": {"born": {"format": "dd/mm/yyyy"}}}``, as docs/python.md lists it.
            tight: propose bounds near the numbers of the file.
            skip_invalid: store the good rows where some are bad, instead of nothing.
            progress: show a bar on a terminal.

        Raises:
            ReadingQuestion: it is left open how the file is read.
            ReadingRefused: it cannot be read, or not so.
            InvalidRecords: rows do not fit, as ``flaws`` say.
            Conflict: ``slug_taken``; there is a schema of this name, and it has another definition
                or records. ``uploaded_before``.
        """
        where = path_of(path)
        try:
            told = await self._link.proxy.look_at_file(where, reading, tight=tight)
        except ReadingRefused as error:
            raise in_words_of_python(error) from None
        found = reading_of(told)
        schema = await self.create_schema(name or where.stem, found.schema, get_or_create=True)
        if await schema.count():
            raise Conflict(
                f"a schema {schema.slug} already exists and has records",
                code="slug_taken",
                hint="choose another name; or store the file there: schema.import_file(path)",
            )
        return await schema.store_file(
            where, found, keeps=True, skip_invalid=skip_invalid, again=False, progress=progress
        )

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
        for schema in keys["schemas"]:
            if not schema["present"]:
                job = AsyncJob(self._link, await self._link.proxy.reseal_schema(schema["schema"]))
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
