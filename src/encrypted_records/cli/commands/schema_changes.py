"""``ers schema change``: what another definition takes, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from encrypted_records.cli.terminal import format_count
from encrypted_records.model import json_text

_TAKES = {
    "commit": "at once",
    "proof": "stored records are checked first",
    "reseal": "a job encrypts all records again",
}


def read_renames(given: tuple[str, ...]) -> dict[str, str]:
    """NEW=OLD of each, by the new name.

    Raises:
        click.BadParameter: one is not so.
    """
    renames = {}
    for pair in given:
        new, equals, old = pair.partition("=")
        if not equals or not new or not old:
            raise click.BadParameter(f"{pair!r} is not NEW=OLD", param_hint="--rename")
        renames[new] = old
    return renames


def lines_of(plan: Mapping[str, Any]) -> Iterator[str]:
    """The changes of a definition, a line for each, with what prevents it in the lines below."""
    if not plan["changes"]:
        yield "Only titles and descriptions change."
        return
    for change in plan["changes"]:
        yield f"{change['pointer']}: {change['detail']} ({_TAKES[change['takes']]})"
        if count := change.get("records"):
            where = "all of them"
            if change["where"] is not None:
                where = f"find them with {json_text.encode(change['where']).decode()}"
            yield f"  {count} of {plan['records']} records prevent it: {where}"
            if change["code"] == "field_removed":
                name = change["field"]
                yield f"  --drop {name} loses its values; --rename NEW={name} keeps them"
    if "old_enough" in plan:
        yield f"{format_count(plan['old_enough'], 'record')} would expire at once."
    if plan["takes"] == "proof":
        yield f"Comparing {plan['records']} records took {plan['seconds']} s."
    if plan["takes"] == "reseal" and plan["possible"]:
        yield f"Encrypting {plan['records']} records again takes about {plan['seconds']} s."
