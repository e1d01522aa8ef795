"""A thousand real rows to look at, for an account that has nothing yet.

They take the way of any file: a dataset, a schema and a batch job, by the endpoints for these.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from typing import Any

from starlette.responses import Response

from encrypted_records.proxy.pages.organizations import own_organizations
from encrypted_records.proxy.pages.page import Visit

_FOLDER = files("encrypted_records") / "example_data"


def rows() -> bytes:
    """The CSV file, with its header."""
    return gzip.decompress(_FOLDER.joinpath("census.csv.gz").read_bytes())


def definition() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(_FOLDER.joinpath("census.schema.json").read_text("utf-8"))
    return loaded


async def store(visit: Visit) -> Response:
    """On to the page of the job."""
    organizations = await own_organizations(visit)
    dataset = await visit.ask(
        "POST",
        "/api/datasets/",
        {
            "name": "Census (example)",
            "description": "A thousand answers to the census of the USA in 1994.",
            "organization": organizations[0]["url"],
        },
    )
    schema = await visit.ask(
        "POST",
        "/api/schemas/",
        {"name": "People", "dataset": dataset["url"], "schema": definition()},
    )
    # The last entry of a header says which schema the rows are of.
    header, _, below = rows().partition(b"\n")
    file = header.rstrip(b"\r") + b",schema_id:" + schema["id"].encode() + b"\n" + below
    headers = {"content-type": "text/csv"}
    made = await visit.answer("POST", "/api/jobs/upload/", file, headers=headers)
    return visit.go(f"/jobs/{made.json()['job_id']}/")
