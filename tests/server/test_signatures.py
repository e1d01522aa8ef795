"""The API verifies signatures, and does nothing else with the library that could do more."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from encrypted_records.server import signatures
from tests.server.rosters import new_identity

SERVER = Path(signatures.__file__).parent
#: What verifies, and what it raises.
TAKEN = {"Ed25519PublicKey", "InvalidSignature"}
#: Points whose order divides 8, one of them in a spelling that RFC 8032 does not allow.
SMALL = [
    (1).to_bytes(32, "little"),
    bytes(32),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
]


def names_taken(path: Path) -> set[str]:
    """What a module imports of ``cryptography``; a whole package counts by its own name."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cryptography"):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names if name.name.startswith("cryptography")}
    return names


def test_the_server_takes_nothing_of_the_library_but_what_verifies() -> None:
    taken = {path.name: names_taken(path) for path in SERVER.rglob("*.py")}
    assert {name: names for name, names in taken.items() if names} == {"signatures.py": TAKEN}


def test_a_signature_is_right_for_its_key_message_and_kind_alone() -> None:
    identity, other = new_identity(), new_identity()
    signed = identity.sign("roster", b"body")
    from encrypted_records.model.signatures import message

    assert signatures.is_by(identity.keys, signed, message("roster", b"body"))
    assert not signatures.is_by(other.keys, signed, message("roster", b"body"))
    assert not signatures.is_by(identity.keys, signed, message("grant", b"body"))
    assert not signatures.is_by(identity.keys, signed, message("roster", b"bodY"))
    assert not signatures.is_by(identity.keys, signed[:-1], message("roster", b"body"))
    assert not signatures.is_by(identity.keys[:-1], signed, message("roster", b"body"))


@pytest.mark.parametrize("key", SMALL)
def test_a_key_under_which_anybody_signs_verifies_nothing(key: bytes) -> None:
    # The neutral element, and S = 0: right for every message under a key of order 1.
    forged = (1).to_bytes(32, "little") + bytes(32)
    assert not any(signatures.is_right(key, forged, str(n).encode()) for n in range(50))
