"""Datasets: :class:`Dataset`.

Made of ``async_datasets.py`` by ``python -m scripts.synchronous_client``; change it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from encrypted_records.client.proxy.records import FoundIn
from encrypted_records.client.sdk.condition_language import Where, condition
from encrypted_records.client.sdk.sync_jobs import Job
from encrypted_records.client.sdk.sync_named import Named
from encrypted_records.client.sdk.sync_schemas import Schema


class Dataset(Named):
    def schemas(self) -> Iterator[Schema]:
        for one in self._link.each(self._link.proxy.listing("schemas", dataset=self.id)):
            yield Schema(self._link, one)

    def search(self, where: Where = None, *, limit: int = 10) -> list[FoundIn]:
        """One condition, asked of each schema that has its fields: counts, and first records.

        Args:
            where: see :data:`Where`; None selects all. It compares with no other schema.
            limit: records shown of each schema, up to 100.
        """
        return self._link.run(
            self._link.proxy.search_dataset(self.url, condition(where), limit=limit)
        )

    def create_schema(
        self,
        name: str,
        definition: Mapping[str, Any],
        *,
        slug: str | None = None,
        description: str | None = None,
        get_or_create: bool = False,
    ) -> Schema:
        """A new schema; ``definition`` is its JSON Schema, as docs/http-api.md describes it.

        Args:
            get_or_create: take the schema of this dataset that has this slug or name, if there is
                one.

        Raises:
            Conflict: ``slug_taken``; there is a schema of this name, or slug, in the dataset
                already. ``other_definition``; the one that is there has another definition.
        """
        there = self._link.run(
            self._link.names.existing(
                "schemas",
                {"dataset": self.id},
                name,
                slug,
                wanted=get_or_create,
                definition=definition,
            )
        )
        if there is not None:
            return Schema(self._link, there)
        resource = self._link.run(
            self._link.proxy.create(
                "schemas",
                name=name,
                dataset=self.url,
                schema=definition,
                slug=slug,
                description=description,
            )
        )
        return Schema(self._link, resource)

    def reseal(self, *, forget: bool = False, progress: bool = False) -> dict[str, Any]:
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
        keys = self._link.run(self._link.proxy.look_at_keys(self.url))
        for one in keys["schemas"]:
            if not one["present"]:
                job = Job(self._link, self._link.run(self._link.proxy.reseal_schema(one["schema"])))
                job.wait(progress=progress)
        if forget:
            return self._link.run(self._link.proxy.forget_keys(self.url))
        return self._link.run(self._link.proxy.look_at_keys(self.url))

    def erase(self, field: str, value: object, *, confirm: int | None = None) -> dict[str, Any]:
        """Delete every record of its schemas with this value, have the bytes go, and wait; the
        receipt, which holds no value.

        Args:
            confirm: how many there have to be; without it nothing is deleted, and the error
                ``confirm_count`` says how many there are.
        """
        return self._link.run(
            self._link.proxy.erase_subject(self.url, field, value, confirm=confirm)
        )
