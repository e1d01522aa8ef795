"""Links to questions from fixed secrets, ids and nonces, and links that are refused."""

from __future__ import annotations

from typing import Any

from tests.reference import links

SCHEMA, LINK = bytes(range(16)), bytes(range(16, 32))
NONCE = bytes(range(12))
FORM = [("field-0", "city"), ("op-0", "eq"), ("value-0", "\u017bory"), ("order", "age")]


def questions() -> dict[str, Any]:
    good = []
    for secret, form in ((bytes(range(32)), FORM), (bytes([251]) * 32, [])):
        key = links.key(secret, SCHEMA, LINK)
        good.append(
            {
                "secret": secret.hex(),
                "text": links.text(secret),
                "schema": SCHEMA.hex(),
                "link": LINK.hex(),
                "key": key.hex(),
                "nonce": NONCE.hex(),
                "form": [list(pair) for pair in form],
                "sealed": links.write(key, NONCE, form).hex(),
            }
        )
    first = good[0]
    sealed, text = bytes.fromhex(str(first["sealed"])), str(first["text"])
    swapped = {"schema": LINK.hex(), "link": SCHEMA.hex()}
    bad = {
        "another secret": {"text": links.text(bytes(32))},
        "a secret that is cut short": {"text": text[:-1]},
        "a padded secret": {"text": text + "="},
        "schema and link the other way round": swapped,
        "another version": {"sealed": (b"\x02" + sealed[1:]).hex()},
        "an altered nonce": {"sealed": (sealed[:1] + b"\xff" + sealed[2:]).hex()},
        "an altered byte": {"sealed": (sealed[:-1] + bytes([sealed[-1] ^ 1])).hex()},
        "cut short": {"sealed": sealed[:20].hex()},
        "nothing": {"sealed": ""},
    }
    kept = {name: first[name] for name in ("text", "schema", "link", "sealed")}
    return {
        "good": good,
        "bad": [
            {"why": why, "error": "does_not_open", **kept, **changed}
            for why, changed in bad.items()
        ],
    }
