"""What was measured, kept in ``bench/results.json``: the charts of docs/performance.md show it.

A benchmark that is asked to (``--keep``) puts its figures there, with the command and the day.
Measure on an idle machine; the file says nothing of how busy it was.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "results.json"

#: What is measured -> a question or a quantity -> a number or numbers.
Figures = Mapping[str, Any]


def load() -> dict[str, dict[str, Any]]:
    """Each measurement by its name: ``command``, ``day``, ``machine``, ``figures``."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return found


def keep(name: str, figures: Figures, *, machine: str, file: Path = FILE) -> None:
    """Put a measurement into the file, instead of the one of the same name."""
    command = " ".join(["python -m", _module(sys.argv[0]), *sys.argv[1:]])
    kept = json.loads(file.read_text()) if file.exists() else {}
    day = datetime.now(UTC).date().isoformat()
    kept[name] = {"command": command, "day": day, "machine": machine, "figures": dict(figures)}
    file.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


def _module(program: str) -> str:
    return f"bench.{Path(program).stem}"
