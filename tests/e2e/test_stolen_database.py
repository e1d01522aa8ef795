"""Whoever steals the database, and knows how the values are distributed, guesses no better.

The thief of these tests knows the exact share of every age, and tries to tell which row has which:
by which ciphertexts are equal, by their order, by their lengths. The same attacks are tried on
what other schemes would have stored of the same column, so that it shows that they work.

A second thief knows other rows of the same kind, and guesses every field by the lengths of all
fields of a row (``ingest/estimate.py``).
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
import numpy as np
import pytest

from encrypted_records.ingest.estimate import LengthLeak, Lengths, attack, lengths_of
from encrypted_records.model.ciphertext_lengths import BESIDE_CLASS
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import from_text
from tests.support import jobs
from tests.support.census_people import ALONE, KINDS, KNOWN, KNOWN_ALONE, STORED, TYPED
from tests.support.service import running_service
from tests.support.store import new_store

ROOT = Path(__file__).parents[2]
DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "education": {"type": "string", "x-index": ["words"]},
        "born": {"type": "string", "format": "date"},
        "seen": {"type": "string", "format": "date-time"},
        "school": {"type": "string", "format": "uuid"},
        "alive": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        "serial": {"type": "integer", "minimum": 0, "maximum": 10**6},
    },
    "unique": [["serial"]],
}
#: Every row has another number, of which a thief who guesses knows nothing anyway.
ATTACKED = [name for name in DEFINITION["properties"] if name != "serial"]
Tokens = Sequence[bytes]
#: From what is stored of each row, and the number of rows with each value, a guess for each row.
Attack = Callable[[Tokens, Counter[str]], list[str]]


def people() -> list[dict[str, str]]:
    with (ROOT / "examples" / "census.csv").open(newline="") as file:
        return [_person(row["age"], row["education"]) for row in csv.DictReader(file)]


def _person(age: str, education: str) -> dict[str, str]:
    """A date, an instant, a uuid and a boolean go with what the census says."""
    born = f"{2026 - int(age)}-06-15"
    return {
        "age": age,
        "education": education,
        "born": born,
        "seen": f"{born}T00:00:00Z",
        "school": str(uuid5(NAMESPACE_URL, education)),
        "alive": "true" if int(age) < 60 else "false",
    }


def _sent(person: dict[str, str]) -> dict[str, Any]:
    return {**person, "age": int(person["age"]), "alive": person["alive"] == "true"}


def by_frequency(tokens: Tokens, shares: Counter[str]) -> list[str]:
    """The most frequent ciphertext is the most frequent value, and so on."""
    values = [value for value, _ in shares.most_common()]
    ranked = [token for token, _ in Counter(tokens).most_common()]
    meaning = {token: values[min(rank, len(values) - 1)] for rank, token in enumerate(ranked)}
    return [meaning[token] for token in tokens]


def by_order(tokens: Tokens, shares: Counter[str]) -> list[str]:
    """The lowest ciphertexts are the lowest values, as many as there are of each."""
    order = sorted(range(len(tokens)), key=lambda at: tokens[at])
    sorted_values = sorted(shares.elements(), key=lambda value: (len(value), value))
    guesses = [""] * len(tokens)
    for at, value in zip(order, sorted_values, strict=True):
        guesses[at] = value
    return guesses


def by_length(tokens: Tokens, shares: Counter[str]) -> list[str]:
    """Longer ciphertexts are longer values, the most frequent of each length class."""
    order = sorted(range(len(tokens)), key=lambda at: (len(tokens[at]), tokens[at]))
    by_size = sorted(shares.elements(), key=lambda value: (len(value), value))
    best: dict[int, Counter[str]] = {}
    for at, value in zip(order, by_size, strict=True):
        best.setdefault(len(tokens[at]), Counter())[value] += 1
    return [best[len(token)].most_common(1)[0][0] for token in tokens]


ATTACKS: tuple[Attack, ...] = (by_frequency, by_order, by_length)


@dataclass(frozen=True)
class Stolen:
    """Per field, what was stored of each row, in every form that the files have. ``lengths`` are
    those of the rows of other schemas, by their definitions; ``alone`` those of rows that were
    stored each by itself, their index pages last."""

    truth: dict[str, list[str]]
    forms: dict[str, list[Tokens]]
    lengths: dict[str, Lengths]
    alone: Lengths


def recovered(tokens: Tokens, truth: Sequence[str]) -> float:
    """The share of rows that the best attack tells."""
    shares = Counter(truth)

    def right(guesses: Sequence[str]) -> float:
        return sum(a == b for a, b in zip(guesses, truth, strict=True)) / len(truth)

    return max(right(attack(tokens, shares)) for attack in ATTACKS)


def guessing(truth: Sequence[str]) -> float:
    """Of one value for all: what knowing the distribution alone is worth."""
    return Counter(truth).most_common(1)[0][1] / len(truth)


def deterministic(truth: Sequence[str]) -> list[bytes]:
    """Tags for equality search: equal values have equal ones."""
    return [hmac.digest(b"key", value.encode(), hashlib.sha256) for value in truth]


def order_preserving(truth: Sequence[str]) -> list[bytes]:
    """Random numbers in the order of the values, one per value."""
    values = sorted(set(truth), key=int)
    codes = sorted(random.Random(3).sample(range(2**32), len(values)))
    code_of = dict(zip(values, codes, strict=True))
    return [code_of[value].to_bytes(4, "big") for value in truth]


def attacked(stolen: Stolen, what: str) -> tuple[SchemaDefinition, dict[str, LengthLeak]]:
    """The attack on the lengths that are in the stolen database, with the other half known."""
    definition = parse_definition(KINDS[what])

    def columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
        return {name: [row.get(name) for row in rows] for name in definition.fields}

    truth, known = columns(STORED), columns(KNOWN)
    lengths = stolen.lengths[what] - BESIDE_CLASS
    assert lengths.shape == (len(STORED), len(definition.fields))
    assert (lengths == lengths_of(definition.fields, truth)).all()
    told = attack(lengths, truth, known, lengths_of(definition.fields, known))
    return definition, {one.name: one for one in told}


@pytest.fixture(scope="module")
def stolen(tmp_path_factory: pytest.TempPathFactory) -> Stolen:
    folder = tmp_path_factory.mktemp("stolen") / "data"
    rows = people()
    with running_service(folder) as service:
        store = new_store(service, DEFINITION)
        sent = [{**_sent(row), "serial": number} for number, row in enumerate(rows)]
        ids = store.ingest(sent)
        # Half of them again, found by their unique field: what is stored is the same.
        again = jobs.as_json(store, sent[::2])
        jobs.completed(store, jobs.started(store, again, X_On_Conflict="replace"))
        single = store.another_schema(TYPED)
        apart = single.ingest(ALONE, at_once=1)
        others = {what: store.another_schema(json.loads(text)) for what, text in KINDS.items()}
        named = {what: other.ingest(STORED) for what, other in others.items()}
    assert len(ids) == len(rows)
    with sqlite3.connect(folder / "api" / "db.sqlite3") as database:
        sealed = sealed_rows(database, store.schema_id, ids)
        pages = [bytes(data) for (data,) in database.execute(_PAGES, [from_text(store.schema_id)])]
        lengths = {
            what: np.array(
                [list(map(len, row)) for row in sealed_rows(database, other.schema_id, named[what])]
            )
            for what, other in others.items()
        }
        sealed_alone = sealed_rows(database, single.schema_id, apart)
        own_pages = first_pages(database, single.schema_id, apart)
    alone = np.array(
        [[*map(len, row), *size] for row, size in zip(sealed_alone, own_pages, strict=True)]
    )
    forms: dict[str, list[Tokens]] = {}
    for position, name in enumerate(DEFINITION["properties"]):
        if name not in ATTACKED:
            continue
        column = [fields[position] for fields in sealed]
        # The whole, its ciphertext behind the version byte, its tag; and stretches of the index.
        forms[name] = [column, [one[1:9] for one in column], [one[-16:] for one in column]]
        forms[name] += list(stretches(pages, len(rows)))
    truth = {name: [row[name] for row in rows] for name in ATTACKED}
    return Stolen(truth, forms, lengths, alone)


_ROWS = (
    "SELECT r.record_id, r.sealed FROM record_row r JOIN record_group g ON g.id = r.group_id"
    " WHERE g.schema_id = ? AND NOT EXISTS (SELECT 1 FROM dead_row d"
    " WHERE d.group_id = r.group_id AND d.ordinal = r.ordinal)"
)
_PAGES = (
    "SELECT p.data FROM index_page p JOIN index_segment s ON s.id = p.segment_id"
    " WHERE s.schema_id = ?"
)


_OWN_PAGES = (
    "SELECT r.record_id, length(s.header), sum(length(p.data)) FROM record_row r"
    " JOIN record_group g ON g.id = r.group_id JOIN index_segment s ON s.id = g.segment_id"
    " JOIN index_page p ON p.segment_id = s.id WHERE g.schema_id = ? GROUP BY r.record_id"
)


def sealed_rows(database: sqlite3.Connection, schema: str, ids: Sequence[str]) -> list[list[bytes]]:
    """The ciphertexts of each of these records, which are all of a schema, in their order: their
    ids tell nothing of it."""
    found = database.execute(_ROWS, [from_text(schema)]).fetchall()
    sealed = {
        bytes(one): msgspec.msgpack.decode(bytes(row), type=list[bytes]) for one, row in found
    }
    assert len(found) == len(sealed) == len(ids)
    return [sealed[from_text(one)] for one in ids]


def first_pages(
    database: sqlite3.Connection, schema: str, ids: Sequence[str]
) -> list[tuple[int, ...]]:
    """Of records that were stored each by itself, the lengths of its index: header and pages."""
    found = {
        bytes(record): (int(header), int(page))
        for record, header, page in database.execute(_OWN_PAGES, [from_text(schema)])
    }
    assert len(found) == len(ids)
    return [found[from_text(one)] for one in ids]


def stretches(pages: Sequence[bytes], count: int) -> Iterator[list[bytes]]:
    """The index pages cut into as many pieces of one size as there are rows."""
    together = b"".join(pages)
    for size in (1, 2, 4, 8, 12):
        if size * count <= len(together):
            yield [together[at * size : (at + 1) * size] for at in range(count)]


def margin(share: float, rows: int) -> float:
    """Four standard deviations of guessing: chance must not fail the test."""
    deviation: float = (share * (1 - share) / rows) ** 0.5
    return 4 * deviation


@pytest.mark.parametrize("field", ATTACKED)
def test_no_attack_on_the_files_tells_more_than_guessing(stolen: Stolen, field: str) -> None:
    truth = stolen.truth[field]
    alone = guessing(truth)
    for tokens in stolen.forms[field]:
        assert recovered(tokens, truth) <= alone + margin(alone, len(truth))


def test_the_attacks_work_on_what_shows_equality_or_order(stolen: Stolen) -> None:
    ages = stolen.truth["age"]
    assert recovered(order_preserving(ages), ages) > 0.95
    assert recovered(deterministic(ages), ages) > 2 * guessing(ages)
    educations = stolen.truth["education"]
    assert recovered(deterministic(educations), educations) > 0.9


def test_no_field_is_guessed_better_by_all_lengths_of_its_row(stolen: Stolen) -> None:
    definition, told = attacked(stolen, "padded")
    assert set(told) == set(definition.fields)
    for one in told.values():
        assert one.bits == 0
        assert abs(one.advantage) <= margin(one.guess, len(STORED)), one
        # More than that: all rows look alike, so there is nothing to guess by.
        assert one.attack == one.guess


def test_the_same_attack_names_values_where_nothing_hides_the_lengths(stolen: Stolen) -> None:
    _, told = attacked(stolen, "bare")
    for name in ("sex", "const", "greek", "chinese"):
        one = told[name]
        assert one.advantage > margin(one.guess, len(STORED)), one
    assert told["greek"].bits > 0.5


def test_rows_of_the_new_types_look_alike_also_where_each_has_an_index_of_its_own(
    stolen: Stolen,
) -> None:
    """Of a single row's index a thief has the size: it says nothing of its words, their number
    among it, nor of dates, instants, uuids and booleans, which may be absent."""
    words = {len(set(row["note"].split())) for row in ALONE}
    assert min(words) == 1
    assert max(words) > 10
    for column in stolen.alone.T:
        assert len(np.unique(column)) == 1
    fields = list(TYPED["properties"])
    rows, known = (
        {name: [row.get(name) for row in some] for name in fields} for some in (ALONE, KNOWN_ALONE)
    )
    theirs = np.repeat(stolen.alone[:1], len(KNOWN_ALONE), axis=0)
    for one in attack(stolen.alone, rows, known, theirs):
        assert (one.bits, one.attack) == (0, one.guess), one
