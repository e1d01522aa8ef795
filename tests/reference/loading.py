"""Vectors as the tests read them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"


def vectors(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def entry_of(case: dict[str, Any]) -> tuple[bytes, bytes, list[bytes]]:
    """A roster's entry: body, signature and openings."""
    body, signature = (bytes.fromhex(case[name]) for name in ("body", "signature"))
    return body, signature, [bytes.fromhex(opening) for opening in case["openings"]]


def raw(spelled: str | int | None, kind: str) -> object:
    """A vector's value as it would come out of a request."""
    if spelled in ("true", "false") and kind == "integer":
        return spelled == "true"
    return spelled if spelled is None or kind == "string" else Decimal(spelled)
