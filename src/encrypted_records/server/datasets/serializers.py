"""Datasets and schemas as requests write them and responses show them."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from encrypted_records.http.definition_schema import DEFINITION
from encrypted_records.model import ids
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.db.fields import ReferenceField
from encrypted_records.server.db.slugs import MAX_SLUG
from encrypted_records.server.http.members import KnownMembers
from encrypted_records.server.http.texts import SlugField, TextField


@extend_schema_field(DEFINITION)
class DefinitionField(serializers.Field[Any, Any, msgspec.Raw, Any]):
    """A definition as the text it was sent as: kept, and given back, to the letter."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        text = bytes(data).decode()
        parsed = parse_definition(text)
        return {
            "definition": text,
            "canonical": parsed.canonical.decode(),
            "definition_digest": parsed.digest,
        }

    def to_representation(self, value: str) -> msgspec.Raw:
        return msgspec.Raw(value.encode())


class _Common(KnownMembers, serializers.ModelSerializer[Any]):
    id = serializers.CharField(read_only=True)
    name = TextField(max_length=200)
    slug = SlugField(max_length=MAX_SLUG, required=False)
    description = TextField(max_length=100_000, allow_blank=True, trim_whitespace=False, default="")


class DatasetSerializer(_Common):
    organization = ReferenceField("organizations")

    class Meta:
        model = Dataset
        fields = [
            *("id", "url", "name", "slug", "description"),
            *("organization", "created", "modified"),
        ]
        read_only_fields = ["id", "url", "created", "modified"]
        # Uniqueness is the database's to decide; see views.
        validators: list[Any] = []


class SchemaSerializer(_Common):
    dataset = ReferenceField("datasets")
    schema = DefinitionField(source="definition")
    organization = serializers.SerializerMethodField()
    key_id = serializers.SerializerMethodField()

    class Meta:
        model = Schema
        fields = [
            *("id", "url", "name", "slug", "description", "dataset", "schema"),
            *("organization", "key_id", "key_version", "first_key_version"),
            *("created", "modified"),
        ]
        read_only_fields = ["id", "url", "key_version", "first_key_version", "created", "modified"]
        validators: list[Any] = []

    def get_organization(self, schema: Schema) -> str:
        return ids.reference("organizations", schema.dataset.organization_id)

    def get_key_id(self, schema: Schema) -> str | None:
        """Which key seals new records, in hex; null until the first were stored."""
        return None if schema.key_id is None else bytes(schema.key_id).hex()

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values: dict[str, Any] = super().to_internal_value(data)
        definition = values.pop("definition", None)
        return values if definition is None else values | definition
