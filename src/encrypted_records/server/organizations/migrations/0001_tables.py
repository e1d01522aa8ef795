"""Organizations, who belongs to them, their rosters and what was done there."""

from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Lower
from django.utils import timezone

from encrypted_records.server.db.fields import OptionalIdField, ShortIdField, new_id
from encrypted_records.server.organizations.models import invitation_end


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("organizations", "0001_initial"),
        ("organizations", "0002_members_and_audit_log"),
        ("organizations", "0003_roster"),
        ("organizations", "0004_use_of_services"),
        ("organizations", "0005_forgotten_epochs"),
        ("organizations", "0006_fewer_indexes"),
        ("organizations", "0007_openings"),
    ]

    dependencies = [
        ("accounts", "0001_tables"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Organization",
            fields=[
                (
                    "id",
                    ShortIdField(default=new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=200)),
                ("slug", models.SlugField(max_length=120, unique=True)),
                ("created", models.DateTimeField(auto_now_add=True)),
                ("modified", models.DateTimeField(auto_now=True)),
                ("roster_number", models.BigIntegerField(default=0)),
                ("roster_digest", models.BinaryField(default=bytes(32), max_length=32)),
            ],
        ),
        migrations.CreateModel(
            name="Entry",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization_id",
                        "number",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("number", models.BigIntegerField()),
                ("digest", models.BinaryField(max_length=32)),
                ("body", models.BinaryField()),
                ("signature", models.BinaryField(max_length=64)),
                ("openings", models.BinaryField()),
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="entries",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "roster_entry",
            },
        ),
        migrations.CreateModel(
            name="DatasetKey",
            fields=[
                ("dataset", ShortIdField(primary_key=True, serialize=False)),
                ("epoch", models.IntegerField()),
                ("first", models.IntegerField(default=1)),
                ("placed", models.BooleanField()),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="dataset_keys",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "roster_dataset",
            },
        ),
        migrations.CreateModel(
            name="Place",
            fields=[
                ("schema", ShortIdField(primary_key=True, serialize=False)),
                ("dataset", ShortIdField()),
                ("placed", models.BooleanField()),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="places",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "roster_place",
            },
        ),
        migrations.CreateModel(
            name="Seat",
            fields=[
                ("id", ShortIdField(primary_key=True, serialize=False)),
                ("digest", models.BinaryField(max_length=32)),
                ("member", OptionalIdField(null=True)),
                ("expires", models.BigIntegerField()),
                ("answer_key", models.BinaryField(max_length=32)),
                ("over", models.BooleanField(default=False)),
                ("answer", models.BinaryField(null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="seats",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "roster_seat",
            },
        ),
        migrations.CreateModel(
            name="Service",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=models.CASCADE,
                        primary_key=True,
                        related_name="service",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                ("expires", models.DateTimeField(null=True)),
                ("created", models.DateTimeField(default=timezone.now, editable=False)),
                ("last_used", models.DateTimeField(null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="services",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "service",
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[("owner", "Owner"), ("member", "Member")],
                        default="member",
                        max_length=10,
                    ),
                ),
                ("all_data", models.BooleanField(default=False)),
                ("created", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="memberships",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("organization"), models.F("user"), name="membership_once_per_user"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                (
                    "id",
                    ShortIdField(default=new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("email", models.EmailField(max_length=254)),
                (
                    "role",
                    models.CharField(
                        choices=[("owner", "Owner"), ("member", "Member")], max_length=10
                    ),
                ),
                ("created", models.DateTimeField(default=timezone.now, editable=False)),
                ("expires", models.DateTimeField(default=invitation_end, editable=False)),
                (
                    "invited_by",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="invitations",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("organization"), Lower("email"), name="one_invitation_each"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    ShortIdField(default=new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("action", models.CharField(max_length=40)),
                ("subject", models.CharField(max_length=200)),
                ("source", models.CharField(max_length=50)),
                ("request_id", models.CharField(max_length=64)),
                ("created", models.DateTimeField(default=timezone.now, editable=False)),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=models.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="+",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["organization", "-id"], name="audit_newest_first")
                ],
            },
        ),
        migrations.CreateModel(
            name="Shared",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("member", ShortIdField()),
                ("dataset", ShortIdField()),
                ("schema", OptionalIdField(null=True)),
                ("writes", models.BooleanField()),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="shared",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "roster_shared",
                "indexes": [
                    models.Index(
                        models.F("member"), models.F("dataset"), name="shared_with_member"
                    ),
                    models.Index(
                        models.F("organization"), models.F("dataset"), name="shared_of_dataset"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Standing",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("member", ShortIdField()),
                ("present", models.BooleanField(default=True)),
                ("is_owner", models.BooleanField()),
                ("keys", models.BinaryField()),
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="standings",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "roster_standing",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("organization"), models.F("member"), name="standing_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredGrant",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("dataset", ShortIdField()),
                ("member", ShortIdField()),
                ("epoch", models.IntegerField()),
                ("number", models.BigIntegerField()),
                ("body", models.BinaryField()),
                ("signature", models.BinaryField(max_length=64)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="grants",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "roster_grant",
                "indexes": [
                    models.Index(
                        models.F("organization"), models.F("member"), name="grants_of_member"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("dataset"), models.F("member"), name="grant_once"
                    )
                ],
            },
        ),
    ]
