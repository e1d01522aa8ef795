"""Tables of an organization's roster: its entries as they were signed, and what follows from them.

The entries and the grants are kept byte for byte, for proxies, which believe nothing else, and
entries are judged by what those before them add up to (:mod:`.roster_states`). The plain tables are
for statements that ask who belongs, under which keys, and what is shared with whom. Only
:mod:`.roster` and what it calls write them, in the transaction that adds the entry.

Members, datasets and schemas are named by their ids here, without a foreign key: the roster goes on
naming what was deleted. Django finds tables through :mod:`.models`, which therefore imports this
module; so keys to its tables name them.

Requests for access are not entries, and have foreign keys: they are deleted with the membership of
who asked, and with the dataset.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from encrypted_records.server.db.fields import OptionalIdField, ShortIdField


class Entry(models.Model):
    """An entry of an organization's roster, as signed by its actor."""

    pk = models.CompositePrimaryKey("organization_id", "number")
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="entries", db_index=False
    )
    number = models.BigIntegerField()
    digest = models.BinaryField(max_length=32)
    body = models.BinaryField()
    signature = models.BinaryField(max_length=64)
    #: of the names that it states, as a MessagePack array
    openings = models.BinaryField()

    class Meta:
        db_table = "roster_entry"


class Standing(models.Model):
    """The keys of a member, and whether the member owns; of those who are out, what was last."""

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="standings", db_index=False
    )
    member = ShortIdField()
    #: whether the member is in
    present = models.BooleanField(default=True)
    is_owner = models.BooleanField()
    keys = models.BinaryField()

    class Meta:
        db_table = "roster_standing"
        constraints = [models.UniqueConstraint("organization", "member", name="standing_once")]


class Shared(models.Model):
    """A right of a member who is not an owner to read, and perhaps write, a dataset or one of its
    schemas.
    """

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="shared"
    )
    member = ShortIdField()
    dataset = ShortIdField()
    #: none for the whole dataset
    schema = OptionalIdField()
    writes = models.BooleanField()

    class Meta:
        db_table = "roster_shared"
        indexes = [
            models.Index("member", "dataset", name="shared_with_member"),
            models.Index("organization", "dataset", name="shared_of_dataset"),
        ]


class DatasetKey(models.Model):
    """The newest epoch of a dataset's keys, and whether the roster names the dataset."""

    dataset = ShortIdField(primary_key=True)
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="dataset_keys"
    )
    epoch = models.IntegerField()
    #: the oldest epoch that is not forgotten
    first = models.IntegerField(default=1)
    #: whether name and slug are the roster's to change
    placed = models.BooleanField()

    class Meta:
        db_table = "roster_dataset"


class Place(models.Model):
    """The dataset of a schema according to the roster."""

    schema = ShortIdField(primary_key=True)
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="places"
    )
    dataset = ShortIdField()
    #: false once the schema's name was freed
    placed = models.BooleanField()

    class Meta:
        db_table = "roster_place"


class Seat(models.Model):
    """An invitation as the roster has it, and what was answered. It stays when it is over, so that
    its id is never used twice."""

    id = ShortIdField(primary_key=True)
    organization = models.ForeignKey("Organization", on_delete=models.CASCADE, related_name="seats")
    #: of the entry
    digest = models.BinaryField(max_length=32)
    #: whom it is for, where that was a member before
    member = OptionalIdField()
    expires = models.BigIntegerField()
    answer_key = models.BinaryField(max_length=32)
    #: nobody answers it or is admitted by it any more
    over = models.BooleanField(default=False)
    #: the frame's payload, while it waits
    answer = models.BinaryField(null=True)

    class Meta:
        db_table = "roster_seat"


class StoredGrant(models.Model):
    """The newest grant of a dataset to a member. It holds every epoch that is not forgotten."""

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="grants"
    )
    dataset = ShortIdField()
    member = ShortIdField()
    epoch = models.IntegerField()
    #: the newest entry of the roster that its actor had read
    number = models.BigIntegerField()
    body = models.BinaryField()
    signature = models.BinaryField(max_length=64)

    class Meta:
        db_table = "roster_grant"
        constraints = [
            models.UniqueConstraint("dataset", "member", name="grant_once"),
        ]
        indexes = [models.Index("organization", "member", name="grants_of_member")]


class StoredRequest(models.Model):
    """A request of a member for access to a dataset, as it was signed."""

    membership = models.ForeignKey(
        "Membership", on_delete=models.CASCADE, related_name="requests", db_index=False
    )
    dataset = models.ForeignKey(
        "datasets.Dataset", on_delete=models.CASCADE, related_name="requests"
    )
    body = models.BinaryField()
    signature = models.BinaryField(max_length=64)
    created = models.DateTimeField(default=timezone.now, editable=False)
    #: when an owner declined it
    declined = models.DateTimeField(null=True)

    class Meta:
        db_table = "access_request"
        constraints = [models.UniqueConstraint("membership", "dataset", name="request_once")]


class Service(models.Model):
    """A program that has a standing of its own, and a token instead of a password.

    It is a user, too, so that whatever is stored or noted names it as it names people. Until the
    roster has its standing it reaches nothing, and once that ends, its token goes.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="service"
    )
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="services"
    )
    #: SHA-256 of the token
    digest = models.BinaryField(max_length=32, unique=True)
    expires = models.DateTimeField(null=True)
    created = models.DateTimeField(default=timezone.now, editable=False)
    #: to the minute
    last_used = models.DateTimeField(null=True)

    class Meta:
        db_table = "service"
