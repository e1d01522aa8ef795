"""What finds one row of an organization finds all of them, too."""

import django.db.models.deletion
from django.db import migrations, models

_DROPPED = (
    "organizations_auditentry_organization_id_0fff2fcb",
    "organizations_membership_organization_id_6889aa64",
    "roster_standing_organization_id_b8644e97",
)


class Migration(migrations.Migration):
    dependencies = [("organizations", "0005_forgotten_epochs")]

    operations = [
        # Django would write the table again on SQLite, and check each row on PostgreSQL.
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL(f"DROP INDEX IF EXISTS {one}") for one in _DROPPED],
            [
                migrations.AlterField(
                    model_name="auditentry",
                    name="organization",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="organizations.organization",
                    ),
                ),
                migrations.AlterField(
                    model_name="membership",
                    name="organization",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="organizations.organization",
                    ),
                ),
                migrations.AlterField(
                    model_name="standing",
                    name="organization",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="standings",
                        to="organizations.organization",
                    ),
                ),
            ],
        ),
    ]
