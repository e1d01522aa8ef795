"""What does an API learn that watches requests? It is attacked with what it sees, and scored.

A service stores census records, and searches for one value each are drawn by Zipf's law. The
attacker has what the API has: length classes, the order of rows, and every request; and other
records of the same kind in plaintext. It says how many records match each search, which search it
was, and what rows hold (``bench/watching``). Beside the service as it is stand proxies that ask
otherwise, worked out and not run: one that asks for exactly its rows each time, as it was before,
and the present one at its weakest, when it holds nothing yet.

    .venv/bin/python -m bench.observer --csv adult.csv

``--order-by`` attacks sorted exports and paging through sorted searches instead.

Without ``--csv`` the records are made from ``examples/census.csv``. ``--formatted`` stores what the
census says in fields with enforced formats, and asks for years, months and words of an indexed
text.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.support.table import Row, show
from bench.watching import by_blocks, by_order, by_rows, census, imagined, session
from bench.watching.by_order import Told
from bench.watching.census import Census
from bench.watching.imagined import EXACTLY, Manner
from bench.watching.knowledge import Floats, Knowledge, Seen
from bench.watching.score import Score, Share, Truth, score
from tests.support.store import new_store

#: Proxies beside the present one, for the choice of sizes.
VARIANTS = {
    "exactly, kept": Manner(sizes=(), least=1, most=0),
    "stretches of 4": Manner(sizes=(4,), most=1 << 20),
    "stretches of 16": Manner(sizes=(16,), most=1 << 20),
    "stretches of 64": Manner(sizes=(64,), most=1 << 20),
}


#: Fields to sort by, and the rows of a page.
ORDERED = ("marital_status", "occupation", "education", "sex", "age")
PAGE = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--csv", type=Path, help="census records with a header")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--others", type=int, default=12_560, help="that the attacker knows")
    parser.add_argument("--searches", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--variants", action="store_true", help="other sizes of stretches, too")
    parser.add_argument(
        "--formatted", action="store_true", help="in dates, uuids, booleans and a note of words"
    )
    parser.add_argument("--imagined", action="store_true", help="work all out, and start nothing")
    parser.add_argument(
        "--order-by", action="store_true", help="sorted exports and paging instead of searches"
    )
    chosen = parser.parse_args()
    found = census.read(chosen.csv, chosen.records, chosen.others, random.Random(chosen.seed))
    if chosen.formatted:
        found = found.formatted()
    print(f"{len(found.stored):,} records, {len(found.others):,} others of their kind", flush=True)
    if chosen.order_by:
        with tempfile.TemporaryDirectory() as folder:
            _report_orders(Path(folder), found)
        return
    draws = census.drawn(found.questions, chosen.searches, random.Random(chosen.seed))
    print(f"{len(draws):,} searches, {len(set(draws))} of {len(found.questions)} different ones")
    if chosen.imagined:
        classes, real = census.length_classes(found.stored, found.kind), None
    else:
        with tempfile.TemporaryDirectory() as folder, session.running(Path(folder), found) as one:
            real = session.searched(one, found, draws)
            classes = session.length_classes(one)
    knowledge = Knowledge(classes, found.others, found.kind)
    truth = Truth(found, knowledge, draws)
    manner = Manner()

    def report(title: str, how: Manner, events: Sequence[Seen], *, popular: bool = False) -> None:
        popularity = _popularity(truth) if popular else None
        show(title, rows_of(judged(truth, how, events, popularity)))

    report("exactly its rows, each time", EXACTLY, imagined.events(found, draws, EXACTLY))
    if real is not None:
        report("the proxy as it is", manner, real)
    events = imagined.events(found, draws, manner) if real is None else real
    if real is None:
        report("the proxy as it is, worked out", manner, events)
    report("the same, and it is known how often each is asked", manner, events, popular=True)
    apart = Manner(apart=True)
    report("each search by itself, to a proxy that holds nothing", apart,
           imagined.events(found, draws, apart))  # fmt: skip
    for name, other in VARIANTS.items() if chosen.variants else ():
        report(name, other, imagined.events(found, draws, other))
        alone = Manner(other.sizes, other.least, other.most, apart=True)
        report(f"{name}, each by itself", alone, imagined.events(found, draws, alone))


def _report_orders(folder: Path, found: Census) -> None:
    """Attack a sorted export and paging by each field, of a proxy that has no row of its schema."""
    exports: list[Row] = []
    pages: list[Row] = []
    slower: list[float] = []
    with session.served(folder) as (service, front):
        for field in ORDERED:
            watched = session.watched(new_store(service, found.kind.definition), front, found)
            plain = session.exported(watched)
            order = session.exported(watched, [field])
            slower.append(order.seconds / plain.seconds)
            told = by_order.attack(found, field, by_order.of_export(order.requests))
            seconds = f"{order.seconds:.2f} s, in the order of storing {plain.seconds:.2f} s"
            exports.append(_told(told, seconds))
            seen = list(session.paged(watched, [field], PAGE))
            told = by_order.attack(found, field, by_order.of_pages(seen, PAGE))
            rows = [sum(map(len, one)) for one in seen]
            pages.append(_told(told, f"rows asked for by page {rows}"))
    show("an export by each field", exports)
    show(f"a search by each field in pages of {PAGE:,}", pages)
    print(f"\nsorted exports take {np.median(slower):.2f} times as long (median)")


def _told(told: Told, beside: str) -> Row:
    figure = f"{told.right:.3f}"
    more = f"mode {told.mode:.3f}  times {told.worth:.2f}  requests {told.requests}  {beside}"
    return Row(told.field, figure, more)


def judged(
    truth: Truth, manner: Manner, events: Sequence[Seen], popularity: Floats | None = None
) -> Score:
    """The attack on what was seen, and how right it was."""
    if not manner.keeps:
        findings = by_rows.attack(truth.knowledge, events, manner.habits, popularity)
    else:
        findings = by_blocks.attack(
            truth.knowledge, events, manner.habits, popularity, apart=manner.apart
        )
    return score(truth, findings, recognised=not manner.keeps)


def _popularity(truth: Truth) -> Floats:
    """The share of each question that the attacker knows, as Zipf's law gave it."""
    questions = truth.census.questions
    asked = np.bincount(truth.draws, minlength=len(questions)) / len(truth.draws)
    share = dict(zip(questions, asked.tolist(), strict=True))
    return np.array([share.get(question, 0.0) for question in truth.knowledge.questions])


def rows_of(found: Score) -> list[Row]:
    median, most = found.errors
    return [
        Row("searches that asked for no rows", f"{found.silent} of {found.searches}",
            f"rows asked for by a search {found.rows:.1f}"),
        Row("repetitions recognised", f"{found.recognised} of {found.searches - found.different}"),
        Row("match count, relative error", f"median {median:.3f}", f"90 % below {most:.3f}"),
        Row("match count exactly", f"{found.exact} of {found.sets}"),
        Row("searches named", f"{found.named:.3f}", f"always the most frequent {found.usual:.3f}"),
        Row("field named", f"{found.field:.3f}"),
        _cells("cells claimed", found.claimed),
        _cells("cells it is sure of, and was not", found.sure),
        _cells("all cells", found.every),
    ]  # fmt: skip


def _cells(name: str, share: Share) -> Row:
    beside = f"right {share.right:.3f}  mode {share.mode:.3f}  by lengths {share.lengths:.3f}"
    return Row(name, f"{share.count}", beside)


def all_of(found: Census, draws: Sequence[int], manner: Manner) -> Score:
    """The score of a proxy that is worked out."""
    knowledge = Knowledge(census.length_classes(found.stored, found.kind), found.others, found.kind)
    truth = Truth(found, knowledge, draws)
    return judged(truth, manner, imagined.events(found, draws, manner))


if __name__ == "__main__":
    main()
