"""What does it cost to read a file as people have it? A file of 200 MB in a German spreadsheet's
form, beside the same values as strict CSV.

Detection looks at the head that clients send, in a worker process. Conversion is the parser of a
job, without checks and encryption: each cell becomes canonical text. Its processor time is compared
with that of the parser of strict CSV. Memory is the largest resident size of the process.

    .venv/bin/python -m bench.reading_files --megabytes 200
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.support.results import keep
from bench.support.table import Row, show
from encrypted_records.client.proxy.uploads import HEAD_BYTES
from encrypted_records.ingest.blocks import Parser, RecordStart
from encrypted_records.ingest.parsing import CsvParser, read_header
from encrypted_records.ingest.reading.parser import head_of, parser_by
from encrypted_records.ingest.reading.recipe import read_recipe
from encrypted_records.proxy.workers.messages import DetectTask
from encrypted_records.proxy.workers.uploads import answer_of

PIECE_BYTES = 1 << 20
_WORDS = ("Grün", "Öl", "Maß", "Weiß", "Blau", "Übung", "Straße", "Käse")
_ROWS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--keep", action="store_true", help="put the figures into results.json")
    parser.add_argument("--machine", default="2 cores")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        people, strict = Path(folder) / "people.csv", Path(folder) / "strict.csv"
        rows = write(people, strict, chosen.megabytes * 1_000_000)
        found = alone(detection, str(people))
        read = alone(conversion, str(people))
        plain = alone(strictly, str(strict))
    assert read["rows"] == plain["rows"] == rows
    figures = {
        "rows": rows,
        "detection_processor_seconds": round(found["processor"], 2),
        "detection_seconds": round(found["seconds"], 2),
        "detection_mebibytes": found["mebibytes"],
        "rows_per_second": round(rows / read["processor"]),
        "conversion_mebibytes": read["mebibytes"],
        "strict_rows_per_second": round(rows / plain["processor"]),
        "strict_mebibytes": plain["mebibytes"],
        "times_the_processor_of_strict_csv": round(read["processor"] / plain["processor"], 2),
    }
    lines = [Row(name.replace("_", " "), f"{value:,}") for name, value in figures.items()]
    show(f"a file of {chosen.megabytes} MB", lines)
    if chosen.keep:
        keep(f"reading-files-{chosen.megabytes}", figures, machine=chosen.machine)


def write(people: Path, strict: Path, size: int) -> int:
    """The same rows twice: with semicolons, commas in numbers, days and words of German, in
    Windows-1252; and as strict CSV. How many they are."""
    chance = random.Random(3)
    blocks = [_block(chance) for _ in range(20)]
    rows = 0
    with people.open("wb") as one, strict.open("wb") as other:
        one.write(b"Nr;Kunde;Betrag;Menge;Seit;Aktiv;Notiz\r\n")
        other.write(b"Nr,Kunde,Betrag,Menge,Seit,Aktiv,Notiz\n")
        while one.tell() < size:
            german, plain = blocks[rows // _ROWS % len(blocks)]
            one.write(german)
            other.write(plain)
            rows += _ROWS
    return rows


def _block(chance: random.Random) -> tuple[bytes, bytes]:
    german, plain = [], []
    for _ in range(_ROWS):
        number, cents = f"{chance.randrange(10**6):07}", chance.randrange(10**8)
        amount = f"{cents // 100:,}".replace(",", ".") + f",{cents % 100:02}"
        count, word = chance.randrange(1000), chance.choice(_WORDS)
        year, month = chance.randrange(1930, 2026), chance.randrange(1, 13)
        day = chance.randrange(1, 29)
        is_active = chance.random() < 0.5
        name, text = f"{word}mann", f"{word} {chance.choice(_WORDS)}, {chance.randrange(10**5)}"
        amount = "k.A." if count % 50 == 0 else amount
        told = "" if count % 50 == 0 else f"{cents // 100}.{cents % 100:02}"
        german.append(
            f"{number};{name};{amount};{count};{day:02}.{month:02}.{year};"
            f"{'ja' if is_active else 'nein'};{text}\r\n"
        )
        plain.append(
            f"{number},{name},{told},{count},{year}-{month:02}-{day:02},"
            f'{"true" if is_active else "false"},"{text}"\n'
        )
    return "".join(german).encode("cp1252"), "".join(plain).encode()


def alone(work: Callable[[str], dict[str, Any]], path: str) -> dict[str, Any]:
    """What work on a file takes, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (work, path))


def _measure(work: Callable[[str], dict[str, Any]], path: str) -> dict[str, Any]:
    begun, busy = time.perf_counter(), time.process_time()
    done = work(path)
    return {
        "seconds": time.perf_counter() - begun,
        "processor": time.process_time() - busy,
        "mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    } | done


def detection(path: str) -> dict[str, Any]:
    with Path(path).open("rb") as file:
        head = file.read(HEAD_BYTES)
    answer_of(DetectTask(head, False, b"", False))
    return {}


def conversion(path: str) -> dict[str, Any]:
    with Path(path).open("rb") as file:
        start = file.read(HEAD_BYTES)
    answer = answer_of(DetectTask(start[:PIECE_BYTES], False, b"", False))
    recipe = read_recipe(msgspec.json.encode(msgspec.json.decode(answer)["reading"]))
    head = head_of(start, recipe, final=False)
    assert head is not None
    busy = time.process_time()
    rows = _count(parser_by(recipe, head, head.start), path, head.start.offset)
    return {"rows": rows, "processor": time.process_time() - busy}


def strictly(path: str) -> dict[str, Any]:
    with Path(path).open("rb") as file:
        header = read_header(file.read(PIECE_BYTES), final=False)
    assert header is not None
    start = RecordStart(header.size, 1)
    return {"rows": _count(CsvParser(header, start), path, header.size)}


def _count(parser: Parser, path: str, begin: int) -> int:
    rows = 0
    with Path(path).open("rb") as file:
        file.seek(begin)
        while piece := file.read(PIECE_BYTES):
            rows += sum(block.count for block in parser.feed(piece))
    return rows + sum(block.count for block in parser.finish())


if __name__ == "__main__":
    main()
