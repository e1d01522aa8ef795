"""The roster of an organization, and what follows from it. Until there is one, members reach all."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import encrypted_records.server.db.fields


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_what_a_copy_does_not_hold"),
        ("organizations", "0002_members_and_audit_log"),
    ]

    operations = [
        migrations.AddField(
            model_name="membership",
            name="all_data",
            field=models.BooleanField(default=True),
        ),
        migrations.AlterField("membership", "all_data", models.BooleanField(default=False)),
        migrations.AddField(
            model_name="organization",
            name="roster_digest",
            field=models.BinaryField(default=bytes(32), max_length=32),
        ),
        migrations.AddField(
            model_name="organization",
            name="roster_number",
            field=models.BigIntegerField(default=0),
        ),
        migrations.CreateModel(
            name="DatasetKey",
            fields=[
                (
                    "dataset",
                    encrypted_records.server.db.fields.ShortIdField(
                        primary_key=True, serialize=False
                    ),
                ),
                ("epoch", models.IntegerField()),
                ("commitment", models.BinaryField(max_length=32)),
                ("since", models.BigIntegerField()),
                ("placed", models.BooleanField()),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
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
                (
                    "organization",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
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
            name="Place",
            fields=[
                (
                    "schema",
                    encrypted_records.server.db.fields.ShortIdField(
                        primary_key=True, serialize=False
                    ),
                ),
                ("dataset", encrypted_records.server.db.fields.ShortIdField()),
                ("placed", models.BooleanField()),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
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
                (
                    "id",
                    encrypted_records.server.db.fields.ShortIdField(
                        primary_key=True, serialize=False
                    ),
                ),
                ("digest", models.BinaryField(max_length=32)),
                ("actor", encrypted_records.server.db.fields.ShortIdField()),
                ("member", encrypted_records.server.db.fields.OptionalIdField()),
                ("expires", models.BigIntegerField()),
                ("answer_key", models.BinaryField(max_length=32)),
                ("over", models.BooleanField(default=False)),
                ("ended", models.BooleanField(default=False)),
                ("answer", models.BinaryField(null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
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
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="service",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                ("expires", models.DateTimeField(null=True)),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
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
            name="Shared",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("member", encrypted_records.server.db.fields.ShortIdField()),
                ("dataset", encrypted_records.server.db.fields.ShortIdField()),
                ("schema", encrypted_records.server.db.fields.OptionalIdField()),
                ("writes", models.BooleanField()),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
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
                ("member", encrypted_records.server.db.fields.ShortIdField()),
                ("present", models.BooleanField(default=True)),
                ("is_service", models.BooleanField()),
                ("is_owner", models.BooleanField()),
                ("name", models.CharField(max_length=254)),
                ("keys", models.BinaryField()),
                ("anchor", models.BinaryField(max_length=32)),
                ("expires", models.DateTimeField(null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
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
                ("dataset", encrypted_records.server.db.fields.ShortIdField()),
                ("member", encrypted_records.server.db.fields.ShortIdField()),
                ("epoch", models.IntegerField()),
                ("number", models.BigIntegerField()),
                ("body", models.BinaryField()),
                ("signature", models.BinaryField(max_length=64)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
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
        migrations.CreateModel(
            name="UsedKey",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.BinaryField(max_length=32)),
                ("member", encrypted_records.server.db.fields.ShortIdField()),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="organizations.organization",
                    ),
                ),
            ],
            options={
                "db_table": "roster_used_key",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("organization"), models.F("digest"), name="used_key_once"
                    )
                ],
            },
        ),
    ]
