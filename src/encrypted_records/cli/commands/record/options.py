"""Options that several commands of ``ers record`` take."""

from __future__ import annotations

import click

from encrypted_records.cli.login.session import DATASET, SCHEMA
from encrypted_records.cli.profiles import ProfileOption

FILE = click.Path(allow_dash=True, dir_okay=False)
schema_option = click.option(
    "--schema",
    type=SCHEMA,
    cls=ProfileOption,
    metavar="NAME",
    required=True,
    help="Slug, name, id or acme/medical/patient.",
)
default_schema_option = click.option(
    "--schema",
    type=SCHEMA,
    cls=ProfileOption,
    metavar="NAME",
    help="Schema of records that do not name one.",
)
dataset_option = click.option(
    "--dataset", type=DATASET, metavar="NAME", help="Dataset of the schema."
)
#: How many records are shown where nothing is said.
SHOWN = 100
where_option = click.option(
    "--where", metavar="JSON", help="Condition as JSON, as in the HTTP API."
)
fields_option = click.option(
    "--fields", metavar="FIELDS", help="Only these fields, such as name,age."
)
limit_option = click.option(
    "--limit", type=click.IntRange(1), help=f"Maximum number of records (default: {SHOWN})."
)
all_option = click.option("--all", "all_", is_flag=True, help="All records, without a limit.")
