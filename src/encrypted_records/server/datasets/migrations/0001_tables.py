"""Datasets, schemas, and the definitions that their logs had."""

from django.conf import settings
from django.db import migrations, models
from django.utils import timezone

from encrypted_records.server.db.fields import ShortIdField, new_id


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("datasets", "0001_initial"),
        ("datasets", "0002_key_versions"),
        ("datasets", "0003_canonical_definition"),
        ("datasets", "0004_stored_rows"),
        ("datasets", "0005_creators"),
        ("datasets", "0006_log_definitions"),
        ("datasets", "0007_resealed"),
        ("datasets", "0008_fewer_indexes"),
    ]

    dependencies = [
        ("organizations", "0001_tables"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Dataset",
            fields=[
                (
                    "id",
                    ShortIdField(default=new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=200)),
                ("slug", models.SlugField(db_index=False, max_length=120)),
                ("description", models.TextField(blank=True, default="")),
                ("created", models.DateTimeField(default=timezone.now, editable=False)),
                ("modified", models.DateTimeField(auto_now=True)),
                (
                    "creator",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=models.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=models.PROTECT,
                        related_name="datasets",
                        to="organizations.organization",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Schema",
            fields=[
                (
                    "id",
                    ShortIdField(default=new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=200)),
                ("slug", models.SlugField(db_index=False, max_length=120)),
                ("description", models.TextField(blank=True, default="")),
                ("definition", models.TextField()),
                ("canonical", models.TextField()),
                ("definition_digest", models.BinaryField(max_length=32)),
                ("created", models.DateTimeField(default=timezone.now, editable=False)),
                ("modified", models.DateTimeField(auto_now=True)),
                ("version", models.BigIntegerField(default=0)),
                ("key_id", models.BinaryField(max_length=8, null=True)),
                ("key_version", models.BigIntegerField(null=True)),
                ("first_key_version", models.BigIntegerField(null=True)),
                ("key_since", models.BigIntegerField(default=0)),
                ("resealed_at", models.BigIntegerField(default=0)),
                ("log_digest", models.BinaryField(default=bytes(32), max_length=32)),
                ("added_at", models.BigIntegerField(default=0)),
                ("live_rows", models.BigIntegerField(default=0)),
                ("stored_rows", models.BigIntegerField(default=0)),
                ("live_segments", models.IntegerField(default=0)),
                (
                    "creator",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=models.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "dataset",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.PROTECT,
                        related_name="schemas",
                        to="datasets.dataset",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="LogDefinition",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.BinaryField(max_length=32)),
                ("canonical", models.TextField()),
                ("version", models.BigIntegerField()),
                ("usable", models.BooleanField(default=True)),
                (
                    "schema",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="definitions", to="datasets.schema"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="dataset",
            constraint=models.UniqueConstraint(
                models.F("organization"), models.F("slug"), name="dataset_slug_in_organization"
            ),
        ),
        migrations.AddConstraint(
            model_name="schema",
            constraint=models.UniqueConstraint(
                models.F("dataset"), models.F("slug"), name="schema_slug_in_dataset"
            ),
        ),
        migrations.AddConstraint(
            model_name="logdefinition",
            constraint=models.UniqueConstraint(
                models.F("schema"), models.F("digest"), name="definition_in_schema"
            ),
        ),
    ]
