"""What the roster says of a dataset or schema, and nobody changes at the API any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from encrypted_records.errors import Conflict, Flaw
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.organizations.roster_data import placed_elsewhere
from encrypted_records.server.organizations.roster_tables import DatasetKey, Place


def keep_dataset(dataset: Dataset, wanted: Mapping[str, Any]) -> None:
    """
    Raises:
        Conflict: ``through_a_proxy``; the roster has the dataset's name and slug.
    """
    if DatasetKey.objects.filter(dataset=dataset.pk, placed=True).exists():
        _keep(dataset, wanted, "name", "slug")


def keep_schema(schema: Schema, wanted: Mapping[str, Any]) -> None:
    """
    Raises:
        Conflict: ``through_a_proxy``, as above, also of its definition; ``schema_placed``.
    """
    if not schema.dataset.organization.has_roster:
        return
    placed = Place.objects.filter(schema=schema.pk, placed=True).exists()
    dataset = wanted.get("dataset")
    if dataset is not None and dataset.pk != schema.dataset_id and (placed or schema.version):
        raise placed_elsewhere()
    if placed:
        _keep(schema, wanted, "name", "slug")
        # From the first commit on, the log has the definition, and says so itself.
        if not schema.version:
            _keep(schema, wanted, "definition_digest", shown="schema")


def _keep(
    named: Dataset | Schema, wanted: Mapping[str, Any], *members: str, shown: str = ""
) -> None:
    changed = [one for one in members if one in wanted and _of(named, one) != wanted[one]]
    if changed:
        detail = "the roster has it, and an entry alone changes it"
        raise Conflict(
            "what the roster of the organization says is changed by an entry of it alone",
            code="through_a_proxy",
            hint="send the change to a proxy, which signs it",
            flaws=tuple(
                Flaw("through_a_proxy", detail, pointer=f"/{shown or one}") for one in changed
            ),
        )


def _of(named: Dataset | Schema, member: str) -> Any:
    value = getattr(named, member)
    return bytes(value) if isinstance(value, memoryview) else value
