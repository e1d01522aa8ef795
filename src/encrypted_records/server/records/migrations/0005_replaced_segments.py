"""Segments whose pages are to go are found without a look at all that there ever were."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("records", "0004_staging")]

    operations = [
        migrations.AddIndex(
            model_name="indexsegment",
            index=models.Index(
                models.F("superseded_at"),
                condition=models.Q(("pages__gt", 0), ("superseded_at__isnull", False)),
                name="index_segment_replaced",
            ),
        )
    ]
