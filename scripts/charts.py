"""Draw the charts of docs/performance.md from bench/results.json: ``python -m scripts.charts``.

They are SVG without styles or scripts, so that every page may show them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bench.support import results

IMAGES = Path(__file__).parents[1] / "docs" / "images"
_INK, _QUIET, _OURS, _PLAIN = "#16202a", "#5b6875", "#0f766e", "#b9c2cc"
_WIDTH, _LABELS, _ROW, _TOP = 760, 210, 22, 70

#: A label, and one value for each series.
Bars = Sequence[tuple[str, Sequence[float]]]


def draw_bars(title: str, unit: str, series: Sequence[str], bars: Bars) -> str:
    """Groups of horizontal bars, each with its value, from zero on."""
    most = max(value for _, values in bars for value in values)
    scale = (_WIDTH - _LABELS - 90) / most
    group = _ROW * len(series) + 10
    height = _TOP + group * len(bars) + 10
    colours = [_OURS, _PLAIN, "#6d28d9", "#b45309"]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
            f' width="{_WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">',
            f'<rect width="{_WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
            f'<g font-family="system-ui, sans-serif" font-size="13" fill="{_INK}">',
            f'<text x="20" y="28" font-size="15" font-weight="600">{escape(title)}</text>',
            *_legend(unit, series, colours),
            *_groups(bars, scale, group, colours),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _legend(unit: str, series: Sequence[str], colours: Sequence[str]) -> Iterator[str]:
    x = 20
    for name, colour in zip(series, colours, strict=False):
        yield f'<rect x="{x}" y="41" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="52" fill="{_QUIET}">{escape(name)}</text>'
        x += 36 + 8 * len(name)
    yield f'<text x="{_WIDTH - 20}" y="52" fill="{_QUIET}" text-anchor="end">{escape(unit)}</text>'


def _groups(bars: Bars, scale: float, group: int, colours: Sequence[str]) -> Iterator[str]:
    for at, (label, values) in enumerate(bars):
        top = _TOP + at * group
        middle = top + _ROW * len(values) / 2 + 4
        yield (f'<text x="{_LABELS - 12}" y="{middle:g}" text-anchor="end">{escape(label)}</text>')
        for number, (value, colour) in enumerate(zip(values, colours, strict=False)):
            y, width = top + number * _ROW, max(1.0, value * scale)
            yield (
                f'<rect x="{_LABELS}" y="{y}" width="{width:.1f}" height="{_ROW - 4}" rx="3"'
                f' fill="{colour}"/>'
            )
            yield (
                f'<text x="{_LABELS + width + 6:.1f}" y="{y + 14}" font-size="12"'
                f' fill="{_QUIET}">{value:,g}</text>'
            )


#: Beginnings of questions that take so long in one of the sizes that others could not be seen.
_LONG = ("part of a text, unique", "semi-join")


def draw_all(kept: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Every chart by the name of its file."""
    sizes = [f"search-{count}" for count in (100_000, 1_000_000, 10_000_000)]
    questions = {
        name: one for name, one in kept[sizes[1]]["figures"].items() if not name.startswith(_LONG)
    }
    postgresql = kept["ingest-1000000-postgresql"]["figures"]
    sqlite = kept["ingest-1000000-sqlite"]["figures"]
    both = (("PostgreSQL", postgresql), ("SQLite", sqlite))
    return {
        "chart-search.svg": draw_bars(
            "Searching a million records",
            "ms, p50, warm",
            ["sealed", "plaintext, same stack"],
            [
                (name, (one["p50_p95"][0], one["plaintext_p50_p95"][0]))
                for name, one in questions.items()
            ],
        ),
        "chart-growth.svg": draw_bars(
            "The same question to more records",
            "ms, p50, warm",
            ["100,000", "1,000,000", "10,000,000"],
            [
                (name, [kept[size]["figures"][name]["p50_p95"][0] for size in sizes])
                for name in questions
            ],
        ),
        "chart-storing.svg": draw_bars(
            "Storing a million records from CSV until all can be searched",
            "records a second",
            ["sealed", "plaintext, COPY or import"],
            [
                (name, (one["records_per_second"], one["plaintext_records_per_second"]))
                for name, one in both
            ],
        ),
        "chart-room.svg": draw_bars(
            "Bytes a record takes, at a million records",
            "bytes",
            ["database on disk", "plaintext with its indexes", "sealed fields", "live index"],
            [
                (
                    name,
                    [
                        one[key]
                        for key in ("disk_bytes", "plaintext_bytes", "sealed_bytes", "index_bytes")
                    ],
                )
                for name, one in both
            ],
        ),
    }


def main() -> None:
    for name, text in draw_all(results.load()).items():
        (IMAGES / name).write_text(text)


if __name__ == "__main__":
    main()
