"""Files as people have them; and with bytes of theirs changed, cut out, put in and doubled."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

FILES = Path(__file__).parents[1] / "ingest" / "files"
#: Of each file that is a table, its expected one.
EXPECTED = {
    path.name.removesuffix(".expected.json"): json.loads(path.read_text())
    for path in sorted(FILES.glob("*.expected.json"))
}
TABLES = [name for name, one in EXPECTED.items() if one["outcome"] == "table"]

#: Columns of texts in which a word may stand for nothing: it is kept, and said.
KEPT_AS_TEXT = {("r-write-csv.csv", "group"), ("ssms.csv", "Note")}


def count_of_mutations(usual: int) -> int:
    """How many a test tries; ``MUTATED_FILES=2500`` asks for all of them."""
    return int(os.environ.get("MUTATED_FILES", str(usual)))


def mutations(count: int) -> Iterator[bytes]:
    """The same ones in each run."""
    chance = random.Random(7)
    for _ in range(count):
        body = bytearray((FILES / chance.choice(TABLES)).read_bytes())
        for _ in range(chance.randrange(1, 9)):
            at = chance.randrange(len(body))
            match chance.randrange(4):
                case 0:
                    body[at] = chance.randrange(256)
                case 1:
                    del body[at : at + chance.randrange(99)]
                case 2:
                    body[at:at] = chance.choice([b'"', b"\n", b";", b",", b"\xff", b"\x00", b"'"])
                case _:
                    body[at:at] = body[at : at + chance.randrange(99)]
            if not body:
                body += b"x"
        yield bytes(body)
