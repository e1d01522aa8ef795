"""docs/performance.md says what was measured: its tables and charts are bench/results.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.support import results
from scripts.charts import IMAGES, draw_all
from tests.test_docs import rows

TEXT = (Path(__file__).parents[1] / "docs" / "performance.md").read_text()
README = (Path(__file__).parents[1] / "README.md").read_text()
KEPT = results.load()
QUANTITIES = {
    "batch job, records/s": "records_per_second",
    "plaintext, `COPY` or import, records/s": "plaintext_records_per_second",
    "processor of proxy and API for a record": "processor_microseconds",
    "merging after that, in the background": "merging_seconds",
    "sealed fields, bytes for a record": "sealed_bytes",
    "index, bytes for a record": "index_bytes",
    "database on disk, bytes for a record": "disk_bytes",
    "plaintext with its indexes": "plaintext_bytes",
}
SMALL = {
    "sealed fields": "sealed_bytes",
    "live index": "index_bytes",
    "database on disk": "disk_bytes",
    "plaintext with its indexes": "plaintext_bytes",
}


def number(cell: str) -> float:
    return float(cell.split(maxsplit=1)[0].replace(",", ""))


def pair(cell: str) -> list[float]:
    return [float(part.replace(",", "")) for part in cell.split("/")]


def test_the_table_of_searches_is_what_was_measured() -> None:
    table = {row[0]: row[1:] for row in rows(TEXT) if len(row) == 6}
    sizes = [KEPT[f"search-{count}"]["figures"] for count in (100_000, 1_000_000, 10_000_000)]
    assert set(table) - {"Question", "---"} == set(sizes[1])
    for name, at_a_million in sizes[1].items():
        cells = table[name]
        for cell, size in zip(cells[:3], sizes, strict=True):
            if cell == "not asked":
                assert name not in size
            else:
                assert pair(cell) == size[name]["p50_p95"]
        assert number(cells[3]) == at_a_million["processor"]
        assert pair(cells[4]) == at_a_million["plaintext_p50_p95"]


def test_the_table_of_storing_is_what_was_measured() -> None:
    table = {row[0]: row[1:] for row in rows(TEXT) if len(row) == 3}
    for what, key in QUANTITIES.items():
        for cell, kind in zip(table[what], ("postgresql", "sqlite"), strict=True):
            assert number(cell) == KEPT[f"ingest-1000000-{kind}"]["figures"][key], what


def test_the_small_table_is_what_was_measured() -> None:
    table = {row[0]: row[1] for row in rows(TEXT) if len(row) == 2}
    figures = KEPT["ingest-50000-sqlite"]["figures"]
    assert {what: number(table[what]) for what in SMALL} == {
        what: figures[key] for what, key in SMALL.items()
    }


def test_the_table_of_sql_is_what_was_measured() -> None:
    table = {row[0]: row[1:] for row in rows(TEXT) if len(row) == 4}
    figures = KEPT["sql-1000000-16"]["figures"]
    taken = {name: values for name, values in figures.items() if isinstance(values, list)}
    for name, (here, *_, plain, _) in ((name, v) for name, v in taken.items() if len(v) == 4):
        assert table[name] == [f"{here:.2f}", f"{plain:.2f}", f"{here - plain:.2f}"], name
    for name in ("all, first", "all, again", "two"):
        assert number(table[f"columns: {name}"][0]) == round(taken[f"columns {name}"][0], 2)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_every_measurement_names_the_command_that_gave_it(name: str) -> None:
    assert KEPT[name]["command"].startswith("python -m bench.")
    assert f"`{KEPT[name]['command']}`".replace(" --keep", "") in " ".join(TEXT.split())


def test_the_charts_are_drawn_from_what_was_measured() -> None:
    for name, drawn in draw_all(KEPT).items():
        assert (IMAGES / name).read_text() == drawn
        assert f"images/{name}" in TEXT


def test_the_first_screen_of_the_readme_says_the_same() -> None:
    searches: dict[str, Any] = KEPT["search-1000000"]["figures"]
    tenth = searches["range over a share of 0.1"]
    said = " ".join(README.split())
    assert f"finding one value takes {searches['equality, unique']['p50_p95'][0]} ms" in said
    plain = f"({tenth['plaintext_p50_p95'][0]} ms unencrypted on the same stack)"
    assert f"matches 10 % of the rows {tenth['p50_p95'][0]} ms {plain}" in said
    rate = KEPT["ingest-1000000-postgresql"]["figures"]["records_per_second"]
    assert f"{rate:,} records are stored per second" in said


def test_a_benchmark_that_is_asked_to_keeps_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results.json"
    monkeypatch.setattr("sys.argv", ["/somewhere/bench/ingest.py", "--records", "7", "--keep"])
    results.keep("other", {"bytes": 1}, machine="none", file=file)
    results.keep("ingest-7-sqlite", {"bytes": 2}, machine="none", file=file)
    results.keep("ingest-7-sqlite", {"bytes": 3}, machine="none", file=file)
    monkeypatch.setattr(results, "FILE", file)
    kept = results.load()
    assert set(kept) == {"other", "ingest-7-sqlite"}
    assert kept["ingest-7-sqlite"]["figures"] == {"bytes": 3}
    assert kept["ingest-7-sqlite"]["command"] == "python -m bench.ingest --records 7 --keep"
