"""Datasets and schemas.

A schema row also carries the state of the schema's data: the version its commits have brought it
to, the key that seals it, the digest of its log. Whoever changes either the definition or the
data locks that row first, so one never moves under the other.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.server.fields import ShortIdField, new_id
from encrypted_records.server.organizations.models import Organization
from encrypted_records.server.slugs import MAX_SLUG

EMPTY_LOG_DIGEST = bytes(32)


class Dataset(models.Model):
    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="datasets"
    )
    name = models.CharField(max_length=200)
    slug = models.SlugField(max_length=MAX_SLUG, db_index=False)
    description = models.TextField(blank=True, default="")
    created = models.DateTimeField(default=timezone.now, editable=False)
    modified = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", "slug", name="dataset_slug_in_organization")
        ]

    @property
    def url(self) -> str:
        return ids.reference("datasets", self.id)


class Schema(models.Model):
    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="schemas")
    name = models.CharField(max_length=200)
    slug = models.SlugField(max_length=MAX_SLUG, db_index=False)
    description = models.TextField(blank=True, default="")
    #: the definition exactly as it was sent
    definition = models.TextField()
    definition_digest = models.BinaryField(max_length=32)
    created = models.DateTimeField(default=timezone.now, editable=False)
    modified = models.DateTimeField(auto_now=True)

    # The state of its data; only records.commits changes these.
    version = models.BigIntegerField(default=0)
    key_id = models.BinaryField(max_length=8, null=True)
    key_version = models.BigIntegerField(null=True)
    #: the version of the first commit
    first_key_version = models.BigIntegerField(null=True)
    #: the version of the data at which the present key version came in
    key_since = models.BigIntegerField(default=0)
    log_digest = models.BinaryField(max_length=32, default=EMPTY_LOG_DIGEST)
    live_rows = models.BigIntegerField(default=0)
    live_segments = models.IntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint("dataset", "slug", name="schema_slug_in_dataset")]

    @property
    def url(self) -> str:
        return ids.reference("schemas", self.id)

    @property
    def uid(self) -> bytes:
        return ids.from_text(self.id)

    def parsed(self) -> SchemaDefinition:
        return parse_definition(self.definition)
