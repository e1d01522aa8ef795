"""Whoever steals the database, and knows how the values are distributed, guesses no better.

The thief of these tests knows the exact share of every age, and tries to tell which row has which:
by which ciphertexts are equal, by their order, by their lengths. The same attacks are tried on
what other schemes would have stored of the same column, so that it shows that they work.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.support.service import running_service
from tests.support.store import new_store

ROOT = Path(__file__).parents[2]
DEFINITION = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "education": {"type": "string"},
    },
}
Tokens = Sequence[bytes]
#: From what is stored of each row, and the number of rows with each value, a guess for each row.
Attack = Callable[[Tokens, Counter[str]], list[str]]


def people() -> list[dict[str, str]]:
    with (ROOT / "examples" / "census.csv").open(newline="") as file:
        return [{"age": row["age"], "education": row["education"]} for row in csv.DictReader(file)]


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
    """Per field, what was stored of each row, in every form that the files have."""

    truth: dict[str, list[str]]
    forms: dict[str, list[Tokens]]


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


@pytest.fixture(scope="module")
def stolen(tmp_path_factory: pytest.TempPathFactory) -> Stolen:
    folder = tmp_path_factory.mktemp("stolen") / "data"
    rows = people()
    with running_service(folder) as service:
        store = new_store(service, DEFINITION)
        ids = store.ingest([{**row, "age": int(row["age"])} for row in rows])
    assert len(ids) == len(rows)
    with sqlite3.connect(folder / "api" / "db.sqlite3") as database:
        sealed = [
            msgspec.msgpack.decode(bytes(found), type=list[bytes])
            for (found,) in database.execute("SELECT sealed FROM record_row ORDER BY record_id")
        ]
        pages = [bytes(data) for (data,) in database.execute("SELECT data FROM index_page")]
    assert len(sealed) == len(rows)
    forms: dict[str, list[Tokens]] = {}
    for position, name in enumerate(DEFINITION["properties"]):  # type: ignore[arg-type]
        column = [fields[position] for fields in sealed]
        # The whole, its ciphertext behind the version byte, its tag; and stretches of the index.
        forms[name] = [column, [one[1:9] for one in column], [one[-16:] for one in column]]
        forms[name] += list(stretches(pages, len(rows)))
    return Stolen({name: [row[name] for row in rows] for name in ("age", "education")}, forms)


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


@pytest.mark.parametrize("field", ["age", "education"])
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
