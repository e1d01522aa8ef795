"""Schemas with their datasets and organizations, for compiled queries: which columns they take, and
what becomes of a row. The definition as it is shown is not read: it may be longer than all else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.organizations.models import Organization

_SCHEMA = [one.attname for one in Schema._meta.concrete_fields if one.name != "definition"]
_DATASET = [one.attname for one in Dataset._meta.concrete_fields]
_ORGANIZATION = [one.attname for one in Organization._meta.concrete_fields]

#: For ``Schema.objects.values_list``.
COLUMNS = (
    *_SCHEMA,
    *(f"dataset__{name}" for name in _DATASET),
    *(f"dataset__organization__{name}" for name in _ORGANIZATION),
)


def schema_of(row: Sequence[Any]) -> Schema:
    """The schema that a row of :data:`COLUMNS` is."""
    end = len(_SCHEMA) + len(_DATASET)
    schema = Schema.from_db(connection.alias, _SCHEMA, row[: len(_SCHEMA)])
    schema.dataset = Dataset.from_db(connection.alias, _DATASET, row[len(_SCHEMA) : end])
    schema.dataset.organization = Organization.from_db(connection.alias, _ORGANIZATION, row[end:])
    return schema
