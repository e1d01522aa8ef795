"""What do the lengths of stored fields tell? The attack of LEAKAGE.md, on census records.

The attacker knows how long every field of each stored row is, and other rows of the same kind in
plaintext. It guesses every field by all lengths of the row (``ingest/estimate.py``): once with the
definition of ``examples/``, whose strings have an ``enum``; once with the same fields as strings
without any keyword; and once as if strings had length classes from 16 bytes on. Names and places
are tried, too, as plain strings and with ``maxLength``, in three scripts.

    .venv/bin/python -m bench.lengths --csv adult.csv

Without ``--csv`` the records are made from ``examples/census.csv``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.support.people import record
from bench.support.table import Row, show
from bench.watching import census
from encrypted_records.ingest.estimate import LengthLeak, Lengths, attack, lengths_of
from encrypted_records.model.ciphertext_lengths import padded_length
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types.base import StringRules

Fields = Mapping[str, FieldSpec]
Rows = Sequence[Mapping[str, str]]
#: Beside each other in Unicode, so that every letter has another one in the script.
SCRIPTS = {"latin": 0x61, "greek": 0x3B1, "chinese": 0x6B27}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--csv", type=Path, help="census records with a header")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--others", type=int, default=12_560, help="that the attacker knows")
    chosen = parser.parse_args()
    found = census.read(chosen.csv, chosen.records, chosen.others, random.Random(7))
    print(f"{len(found.stored):,} records, {len(found.others):,} others of their kind", flush=True)
    defined = census.PLAIN.parsed.fields
    report("as examples/census.schema.json says", defined, found.stored, found.others)
    report("strings without a keyword", bare(defined), found.stored, found.others)
    report("classes from 16 bytes on", bare(defined), found.stored, found.others, finest=True)
    people = named(chosen.records + chosen.others)
    stored, others = people[: chosen.records], people[chosen.records :]
    names = {name: FieldSpec(name, "string") for name in people[0]}
    report("names, strings without a keyword", names, stored, others)
    short = StringRules(max_length=32)
    padded = {name: replace(spec, string=short) for name, spec in names.items()}
    report("names, maxLength 32", padded, stored, others)


def bare(fields: Fields) -> Fields:
    """Without what hides lengths."""
    return {
        name: replace(spec, allowed=None, pad_to=None, string=StringRules())
        for name, spec in fields.items()
    }


def named(count: int) -> list[dict[str, str]]:
    """Full names and cities, in letters of one, two and three bytes."""
    chance = random.Random(5)
    made = []
    for number in range(count):
        one = record(chance, number)
        texts = {"name": f"{one['first']} {one['last']}", "city": one["city"].lower()}
        made.append(
            {
                f"{what}, {script}": "".join(
                    chr(ord(letter) - 0x61 + start) if letter.isalpha() else letter
                    for letter in text
                )
                for what, text in texts.items()
                for script, start in SCRIPTS.items()
            }
        )
    return made


def report(title: str, fields: Fields, stored: Rows, others: Rows, *, finest: bool = False) -> None:
    """Attack the stored rows.

    Args:
        finest: whether lengths tell the class from 16 bytes on, whatever the fields say.
    """
    truth, known = columns(stored, fields), columns(others, fields)
    lengths = of_texts if finest else lengths_of
    found = attack(lengths(fields, truth), truth, known, lengths(fields, known))
    show(title, [line(one) for one in found])


def columns(rows: Rows, fields: Fields) -> dict[str, list[str | None]]:
    """By field; what is empty is absent."""
    return {name: [row[name] or None for row in rows] for name in fields}


def of_texts(fields: Fields, values: Mapping[str, Sequence[str | None]]) -> Lengths:
    """The class of each text by itself; of a number one for all."""
    return np.array(
        [
            [
                padded_length(len((value or "").encode()) + 1 if fields[name].number is None else 8)
                for value in column
            ]
            for name, column in values.items()
        ],
        np.int64,
    ).T


def line(told: LengthLeak) -> Row:
    beside = f"most frequent {told.guess:.3f}  advantage {told.advantage:+.4f}"
    return Row(told.name, f"{told.attack:.3f}", f"{beside}  bits of its own {told.bits:.2f}")


if __name__ == "__main__":
    main()
