"""Options that several commands of ``ers record`` take."""

from __future__ import annotations

import click

from encrypted_records.cli.profiles import ProfileOption

FILE = click.Path(allow_dash=True, dir_okay=False)
schema_option = click.option(
    "--schema",
    cls=ProfileOption,
    metavar="NAME",
    required=True,
    help="Slug, name, id or acme/medical/patient.",
)
default_schema_option = click.option(
    "--schema", cls=ProfileOption, metavar="NAME", help="Schema of the records that name none."
)
dataset_option = click.option("--dataset", metavar="NAME", help="Where to look for the schema.")
#: How many records are shown where nothing is said.
SHOWN = 100
where_option = click.option(
    "--where", metavar="JSON", help="The condition as JSON, as the HTTP API takes it."
)
fields_option = click.option("--fields", metavar="FIELDS", help="Only these, such as name,age.")
limit_option = click.option(
    "--limit", type=click.IntRange(1), help=f"At most so many; {SHOWN} if left out."
)
all_option = click.option("--all", "all_", is_flag=True, help="All of them.")
