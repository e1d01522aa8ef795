"""Links to questions: what the proxy keeps of them opens nothing, and ends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from encrypted_records import runtime
from encrypted_records.errors import BadInput, DoesNotOpen, NotFound
from encrypted_records.model.ids import new_id
from encrypted_records.proxy import saved_questions
from encrypted_records.proxy.saved_questions import QuestionLinks, QuestionStore

USER, SCHEMA = new_id(), new_id()
VALUE = "Zaunkoenig of the fen"
FORM = [("part-0", f'name = "{VALUE}"')]


@pytest.fixture
def links(tmp_path: Path) -> Iterator[QuestionLinks]:
    with closing(QuestionStore(tmp_path / "questions.sqlite3")) as store:
        yield QuestionLinks(store)


def test_what_is_kept_of_a_link_has_neither_the_question_nor_the_secret(
    links: QuestionLinks, tmp_path: Path
) -> None:
    link, secret = asyncio.run(links.add(USER, SCHEMA, FORM))
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert link in kept
    assert VALUE.encode() not in kept
    assert secret.text().encode() not in kept
    assert asyncio.run(links.open(SCHEMA, link, secret.text())) == FORM


def test_a_link_opens_by_its_own_secret_and_for_its_own_schema(links: QuestionLinks) -> None:
    link, secret = asyncio.run(links.add(USER, SCHEMA, FORM))
    other, others = asyncio.run(links.add(USER, SCHEMA, FORM))
    for text in (others.text(), "", secret.text()[:-1], secret.text() + "A"):
        with pytest.raises(DoesNotOpen):
            asyncio.run(links.open(SCHEMA, link, text))
    for schema, name in ((new_id(), link), (SCHEMA, new_id())):
        with pytest.raises(NotFound):
            asyncio.run(links.open(schema, name, secret.text()))
    assert asyncio.run(links.open(SCHEMA, other, others.text())) == FORM


def test_a_link_ends_and_makes_room(links: QuestionLinks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_questions, "MOST_LINKS", 2)
    link, secret = asyncio.run(links.add(USER, SCHEMA, FORM))
    asyncio.run(links.add(USER, SCHEMA, FORM))
    with pytest.raises(BadInput, match=re.escape("2 links")):
        asyncio.run(links.add(USER, SCHEMA, FORM))
    asyncio.run(links.add(new_id(), SCHEMA, FORM))  # of another user

    later = runtime.machine.wall_ns() + (saved_questions.LINK_DAYS * 86_400 + 1) * 10**9
    monkeypatch.setattr(runtime.machine, "wall_ns", lambda: later)
    with pytest.raises(NotFound):
        asyncio.run(links.open(SCHEMA, link, secret.text()))
    asyncio.run(links.add(USER, SCHEMA, FORM))


def test_a_question_that_is_too_long_gets_no_link(links: QuestionLinks) -> None:
    form = [("value-0", "x" * saved_questions.MOST_BYTES)]
    with pytest.raises(BadInput, match="too long"):
        asyncio.run(links.add(USER, SCHEMA, form))
