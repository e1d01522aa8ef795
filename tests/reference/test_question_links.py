"""A link to a question is sealed as the specification says, by the package and by the reference."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records import runtime
from encrypted_records.crypto.keys import LinkSecret
from encrypted_records.errors import ErsError
from tests.reference import Refused, links, msgpack
from tests.reference.loading import vectors

FOUND = vectors("links.json")


def padded(form: list[list[str]]) -> bytes:
    content = msgpack.pack(form)
    framed = len(content).to_bytes(4, "big") + content
    return framed + bytes(-len(framed) % 512)


@pytest.mark.parametrize("entry", FOUND["good"], ids=lambda entry: entry["text"][:4])
def test_a_question_of_a_link_is_sealed_as_specified(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, link, sealed = (bytes.fromhex(entry[name]) for name in ("schema", "link", "sealed"))
    assert links.read(entry["text"], schema, link, sealed) == msgpack.pack(entry["form"])
    secret = LinkSecret.read(entry["text"])
    assert secret.text() == entry["text"]
    assert entry["text"] not in repr(secret)
    assert secret.open(schema, link, sealed) == padded(entry["form"])
    monkeypatch.setattr(
        runtime.machine, "random_bytes", lambda size: bytes.fromhex(entry["nonce"])[:size]
    )
    assert secret.seal(schema, link, padded(entry["form"])) == sealed


@pytest.mark.parametrize("entry", FOUND["bad"], ids=lambda entry: entry["why"])
def test_another_link_is_refused(entry: dict[str, Any]) -> None:
    schema, link, sealed = (bytes.fromhex(entry[name]) for name in ("schema", "link", "sealed"))
    with pytest.raises(Refused) as refused:
        links.read(entry["text"], schema, link, sealed)
    assert refused.value.code == entry["error"]
    with pytest.raises(ErsError) as caught:
        LinkSecret.read(entry["text"]).open(schema, link, sealed)
    assert caught.value.reason == entry["error"]
