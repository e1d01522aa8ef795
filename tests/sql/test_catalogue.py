"""A name of a table means that table, and of several that share it, none by chance."""

from __future__ import annotations

import pytest

from encrypted_records.sql.catalogue import Catalogue, SqlTable

A, B, OTHER = (
    SqlTable(dataset, name, f"/api/schemas/{dataset}-{name}/", ())
    for dataset, name in (("a", "patient"), ("b", "Patient"), ("b", "visit"))
)
CATALOGUE = Catalogue(("a", "b"), (A, B, OTHER))


@pytest.mark.parametrize(
    ("name", "dataset", "found"),
    [
        ("patient", None, [A, B]),
        ("VISIT", None, [OTHER]),
        ("b.patient", None, [B]),
        ("patient", "a", [A]),
        ("visit", "a", []),
        ("b.visit", "a", [OTHER]),
        ("nothing", None, []),
    ],
)
def test_names_find_every_table_that_they_may_mean(
    name: str, dataset: str | None, found: list[SqlTable]
) -> None:
    assert CATALOGUE.named(name, dataset) == found
