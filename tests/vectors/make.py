"""Write the vectors anew: ``python -m tests.vectors.make`` from the root of the repository.

Everything comes from the reference implementation and from fixed inputs, so that a run changes
nothing unless the format did. ``tests/reference/test_vectors_are_current.py`` compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.vectors import cases, keyring_cases, paged_cases, sealed_cases, spool_cases

HERE = Path(__file__).parent


def build() -> dict[str, Any]:
    """File name to content."""
    return {
        "derivation.json": cases.derivation(),
        "bindings.json": cases.bindings(),
        "definitions.json": cases.definitions(),
        "padding.json": cases.padding(),
        "order_bytes.json": cases.order_bytes(),
        "values.json": cases.values(),
        "keyring.json": keyring_cases.keyring(),
        "phrases.json": keyring_cases.phrases(),
        "fields.json": sealed_cases.fields(),
        "group.json": sealed_cases.group(),
        "rotation.json": sealed_cases.rotation(),
        "paged.json": paged_cases.segments(),
        "spool.json": spool_cases.spool(),
    }


def text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


def main() -> None:
    for name, content in build().items():
        (HERE / name).write_text(text(content))


if __name__ == "__main__":
    main()
