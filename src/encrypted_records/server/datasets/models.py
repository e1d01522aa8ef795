"""Datasets and schemas.

A schema row also has the state of the schema's data: its newest version, the key that seals it, the
digest of its log. Every change of the definition or the data locks that row first, so that neither
changes during a change of the other.
"""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings
from django.db import models
from django.utils import timezone

from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.server.db.fields import MAX_SLUG, OptionalIdField, ShortIdField, new_id
from encrypted_records.server.organizations.models import Organization

EMPTY_LOG_DIGEST = bytes(32)
#: Longer definitions are not cached in parsed form, which may take a hundred times as much memory.
_KEPT_CHARACTERS = 64 << 10


class Dataset(models.Model):
    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="datasets"
    )
    #: who may delete it besides the owners; null if it was made before creators were stored
    creator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
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
    dataset = models.ForeignKey(
        Dataset, on_delete=models.PROTECT, related_name="schemas", db_index=False
    )
    #: as for a dataset
    creator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    name = models.CharField(max_length=200)
    slug = models.SlugField(max_length=MAX_SLUG, db_index=False)
    description = models.TextField(blank=True, default="")
    #: the definition exactly as it was sent, or as a commit brought it, for display
    definition = models.TextField()
    #: its canonical form, with the ids of the fields; from the first commit on, the log's
    canonical = models.TextField()
    definition_digest = models.BinaryField(max_length=32)
    created = models.DateTimeField(default=timezone.now, editable=False)
    modified = models.DateTimeField(auto_now=True)

    # The state of the data; only commits.commits changes these columns.
    version = models.BigIntegerField(default=0)
    key_id = models.BinaryField(max_length=8, null=True)
    key_version = models.BigIntegerField(null=True)
    #: the key version of the first commit, or of the newest full reseal
    first_key_version = models.BigIntegerField(null=True)
    #: the version of the data at which the current key version was first used
    key_since = models.BigIntegerField(default=0)
    #: the newest version at which everything was resealed; 0 if it never was
    resealed_at = models.BigIntegerField(default=0)
    log_digest = models.BinaryField(max_length=32, default=EMPTY_LOG_DIGEST)
    #: the newest version whose commit added records
    added_at = models.BigIntegerField(default=0)
    live_rows = models.BigIntegerField(default=0)
    #: includes dead rows and holes, but not the rows of ended groups
    stored_rows = models.BigIntegerField(default=0)
    live_segments = models.IntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint("dataset", "slug", name="schema_slug_in_dataset")]

    @property
    def url(self) -> str:
        return ids.reference("schemas", self.id)

    @property
    def uid(self) -> bytes:
        return ids.from_text(self.id)

    def parse(self) -> SchemaDefinition:
        return parse_kept(self.canonical)


class Reach(models.Model):
    """A row of the view of rights (:data:`..sql.REACH`): a member can reach a dataset or one of its
    schemas; ``writes`` says whether the member may write there.
    """

    member = ShortIdField(primary_key=True)
    dataset = ShortIdField()
    #: null for the whole dataset
    schema = OptionalIdField()
    writes = models.BooleanField()

    class Meta:
        managed = False
        db_table = "reach"


class LogDefinition(models.Model):
    """A definition that a schema's log brought: stored data may be under any of them."""

    schema = models.ForeignKey(Schema, on_delete=models.CASCADE, related_name="definitions")
    digest = models.BinaryField(max_length=32)
    canonical = models.TextField()
    #: the version of the log that brought it; the newest if there are several
    version = models.BigIntegerField()
    #: whether data may still be added under it
    usable = models.BooleanField(default=True)

    class Meta:
        constraints = [models.UniqueConstraint("schema", "digest", name="definition_in_schema")]

    def parse(self) -> SchemaDefinition:
        return parse_kept(self.canonical)


def parse_kept(canonical: str) -> SchemaDefinition:
    """A definition that was checked before it was stored."""
    few = len(canonical) <= _KEPT_CHARACTERS
    return _parse_once(canonical) if few else parse_canonical(canonical.encode())


@lru_cache(maxsize=64)
def _parse_once(canonical: str) -> SchemaDefinition:
    return parse_canonical(canonical.encode())
