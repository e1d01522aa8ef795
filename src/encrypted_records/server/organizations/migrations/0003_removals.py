"""An index of removals: the removed are told who removed them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("organizations", "0002_judged_by_entries")]

    operations = [
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(
                condition=models.Q(("action", "member.removed")),
                fields=["organization", "subject"],
                name="audit_removals",
            ),
        )
    ]
