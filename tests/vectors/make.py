"""Write the vectors anew: ``python -m tests.vectors.make`` from the root of the repository.

Everything comes from the reference implementation and from fixed inputs, so that a run changes
nothing unless the format did. ``tests/reference/test_vectors_are_current.py`` compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.vectors import (
    cases,
    checkpoint_cases,
    commit_cases,
    compaction_cases,
    definition_cases,
    device_cases,
    grant_cases,
    hole_cases,
    identity_cases,
    invitation_cases,
    kept_cases,
    keyring_cases,
    link_cases,
    paged_cases,
    request_cases,
    roster_cases,
    sealed_cases,
    spool_cases,
    word_cases,
)

HERE = Path(__file__).parent


def build() -> dict[str, Any]:
    """File name to content."""
    return {
        "derivation.json": cases.derivation(),
        "bindings.json": cases.bindings(),
        "definitions.json": definition_cases.definitions(),
        "successions.json": definition_cases.successions(),
        "padding.json": cases.padding(),
        "order_bytes.json": cases.order_bytes(),
        "rebases.json": definition_cases.rebases(),
        "values.json": cases.values(),
        "keyring.json": keyring_cases.keyring(),
        "phrases.json": keyring_cases.phrases(),
        "fields.json": sealed_cases.fields(),
        "group.json": sealed_cases.group(),
        "rotation.json": sealed_cases.rotation(),
        "holes.json": hole_cases.holes(),
        "paged.json": paged_cases.segments(),
        "words.json": word_cases.cases(),
        "spool.json": spool_cases.spool(),
        "devices.json": device_cases.secrets(),
        "links.json": link_cases.questions(),
        "ledgers.json": kept_cases.ledgers(),
        "identities.json": identity_cases.identities(),
        "rosters.json": roster_cases.rosters(),
        "grants.json": grant_cases.grants(),
        "requests.json": request_cases.requests(),
        "commits.json": commit_cases.commits(),
        "compactions.json": compaction_cases.compactions(),
        "checkpoints.json": checkpoint_cases.checkpoints(),
        "invitations.json": invitation_cases.invitations(),
    }


def text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


def main() -> None:
    for name, content in build().items():
        (HERE / name).write_text(text(content))


if __name__ == "__main__":
    main()
