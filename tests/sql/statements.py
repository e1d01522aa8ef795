"""Generated SELECTs over two tables, each with one right answer, whatever the order of rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

#: Columns by table, with a kind of value each.
TABLES: dict[str, dict[str, str]] = {
    "person": {
        "id": "int",
        "name": "text",
        "city": "text",
        "age": "int",
        "score": "number",
        "born": "date",
        "seen": "instant",
        "wakes": "time",
        "ok": "bool",
        "key": "uuid",
    },
    "visit": {"person": "int", "day": "date", "cost": "number", "note": "text"},
}
FIELDS: dict[str, dict[str, Any]] = {
    "int": {"type": "integer", "minimum": -100, "maximum": 100_000},
    "text": {"type": "string"},
    "number": {"type": "number", "minimum": -1000, "maximum": 1000, "precision": 2},
    "date": {"type": "string", "format": "date"},
    "instant": {"type": "string", "format": "date-time"},
    "time": {"type": "string", "format": "time"},
    "bool": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
    "uuid": {"type": "string", "format": "uuid"},
}
LONG = "a note that is longer than what an index key holds of a text, number "
TEXTS = [
    "Oslo",
    "oslo",
    "Bergen",
    "e\u0301te\u0301",
    "été",
    "",
    "x'y",
    "z%_",
    "naïve",
    "\U0001f600",
    "a",
]


def definition(table: str) -> dict[str, Any]:
    return {
        "type": "object",
        "formats": "enforced",
        "properties": {name: FIELDS[kind] for name, kind in TABLES[table].items()},
        "required": [],
    }


def value(kind: str, chance: random.Random) -> Any:
    """A value of a record; some kinds have few different ones."""
    number = chance.randrange(40)
    match kind:
        case "int":
            return chance.choice([number, number, chance.randrange(-100, 100_000)])
        case "text":
            return chance.choice([*TEXTS, f"t{number}", LONG + str(number % 7)])
        case "number":
            return round(chance.uniform(-50, 50), 2) if number % 2 else number
        case "date":
            return (
                f"{chance.choice([1, 1969, 2000, 2024, 9999]):04}-0{1 + number % 9}-1{number % 10}"
            )
        case "instant":
            return (
                f"2024-0{1 + number % 3}-01T0{number % 10}:30:00.5{chance.choice(['Z', '+02:00'])}"
            )
        case "time":
            return f"{number % 24:02}:15:00"
        case "bool":
            return bool(number % 2)
    return f"0190163d-8694-739b-aea5-0000000000{number:02x}"


def record(table: str, chance: random.Random) -> dict[str, Any]:
    return {
        name: value(kind, chance) for name, kind in TABLES[table].items() if chance.random() < 0.85
    }


@dataclass(frozen=True)
class Statement:
    """``ordered`` is whether the order of rows is part of the answer."""

    text: str
    ordered: bool


def literal(kind: str, chance: random.Random) -> str:
    shown = value(kind, chance)
    match kind:
        case "int":
            return str(chance.choice([shown, shown, 10**7, -5000]))
        case "number":
            return chance.choice([str(shown), f"{shown}::decimal(10,2)", "7.005", "123456.5"])
        case "text":
            return "'" + str(shown).replace("'", "''") + "'"
        case "bool":
            return str(shown).lower()
        case "date":
            return f"DATE '{shown}'"
        case "instant":
            return f"TIMESTAMPTZ '{shown}'"
        case "time":
            return f"TIME '{shown}'"
    return f"'{shown}'::uuid"


class Generator:
    """Statements of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def statement(self) -> Statement:
        form = self.chance.choice(
            [
                self.plain,
                self.first,
                self.grouped,
                self.joined,
                self.windowed,
                self.with_query,
                self.nested,
                self.set_operation,
                self.twice,
            ]
        )
        return form()

    # --- parts ------------------------------------------------------------------------------------

    def columns(self, table: str, kinds: str = "") -> list[str]:
        found = [name for name, kind in TABLES[table].items() if not kinds or kind in kinds.split()]
        return self.chance.sample(found, self.chance.randint(1, min(3, len(found))))

    def where(self, table: str, alias: str = "", depth: int = 0) -> str:
        roll = self.chance.random()
        if depth < 2 and roll < 0.3:
            word = self.chance.choice(["AND", "OR"])
            both = (self.where(table, alias, depth + 1) for _ in range(2))
            return f"({f' {word} '.join(both)})"
        if depth < 2 and roll < 0.4:
            return f"NOT ({self.where(table, alias, depth + 1)})"
        (name,) = self.columns(table)[:1]
        return self.comparison(alias + name, TABLES[table][name], table, alias)

    def comparison(self, name: str, kind: str, table: str, alias: str) -> str:
        one, two = literal(kind, self.chance), literal(kind, self.chance)
        forms = [f"{name} = {one}", f"{name} <> {one}", f"{name} IS NULL", f"{name} IS NOT NULL"]
        forms += [f"{name} IN ({one}, {two})", f"{name} NOT IN ({one}, NULL)"]
        forms += [
            f"{name} IS DISTINCT FROM {one}",
            f"{one} = {name}",
            f"coalesce({name}, {one}) = {one}",
        ]
        if kind != "bool":
            forms += [f"{name} < {one}", f"{name} >= {one}", f"{name} BETWEEN {one} AND {two}"] * 2
        if kind == "text":
            forms += [f"{name} LIKE 'O%'", f"{name} LIKE '%e%'", f"{name} ILIKE 'o%'"]
            forms += [
                f"starts_with({name}, {one})",
                f"contains({name}, {one})",
                f"suffix({name}, {one})",
            ]
            forms += [f"length({name}) > 3", f"upper({name}) = 'OSLO'", f"{name} LIKE 'a note%'"]
        if kind == "bool":
            forms += [name, f"NOT {name}", f"{name} IS TRUE"]
        if kind == "date":
            forms += [f"year({name}) = 2024", f"{name} > DATE '2000-01-01' - INTERVAL 3 YEAR"]
        if kind == "int":
            forms += [f"{name} % 3 = 1", f"{name} + 1 > {one}", f"-{name} < {one}", f"{name} > 7.5"]
        return self.chance.choice(forms)

    def ordered(self, text: str, count: int) -> Statement:
        """Maybe in an order by all columns, and then maybe a part of it."""
        if self.chance.random() < 0.5:
            return Statement(text, ordered=False)
        nulls = self.chance.choice(["", " NULLS FIRST", " DESC", " DESC NULLS LAST"])
        by = ", ".join(f"{at}{nulls}" for at in range(1, count + 1))
        part = self.chance.choice(["", " LIMIT 5", " LIMIT 7 OFFSET 3"])
        return Statement(f"{text} ORDER BY {by}{part}", ordered=True)

    # --- forms ------------------------------------------------------------------------------------

    def table(self) -> str:
        return self.chance.choice(list(TABLES))

    def plain(self) -> Statement:
        table = self.table()
        columns = self.columns(table)
        distinct = self.chance.choice(["", "DISTINCT "])
        text = f"SELECT {distinct}{', '.join(columns)} FROM {table} WHERE {self.where(table)}"
        return self.ordered(text, len(columns))

    def first(self) -> Statement:
        """The first rows of an order by all columns, each in a direction of its own."""
        table = self.table()
        columns = self.columns(table)
        directions = ["", " DESC", " NULLS FIRST", " DESC NULLS FIRST", " ASC NULLS LAST"]
        keys = [
            f"{self.chance.choice([name, f'{table}.{name}'])}{self.chance.choice(directions)}"
            for name in self.chance.sample(columns, len(columns))
        ]
        where = self.chance.choice(["", f" WHERE {self.where(table, depth=1)}"])
        text = f"SELECT {', '.join(columns)} FROM {table}{where} ORDER BY {', '.join(keys)}"
        part = self.chance.choice([" LIMIT 5", " LIMIT 1", " LIMIT 40 OFFSET 30", " LIMIT 900"])
        return Statement(text + part, ordered=True)

    def grouped(self) -> Statement:
        table = self.table()
        (by,) = self.columns(table)[:1]
        (number,) = self.columns(table, "int number")[:1]
        (other,) = self.columns(table)[:1]
        measure = self.chance.choice(
            [
                f"sum({number})",
                f"count({other})",
                f"max({other})",
                f"count(DISTINCT {other})",
                f"string_agg({number}::text, ',' ORDER BY {number})",
                f"median({number})",
                f"count(*) FILTER (WHERE {self.where(table)})",
            ]
        )
        where = self.chance.choice(["", f" WHERE {self.where(table)}"])
        group = self.chance.choice([by, f"ROLLUP ({by})"])
        having = self.chance.choice(["", " HAVING count(*) > 2"])
        text = f"SELECT {by}, {measure}, count(*) FROM {table}{where} GROUP BY {group}{having}"
        return self.ordered(text, 3)

    def joined(self) -> Statement:
        kind = self.chance.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        where = self.chance.choice(["", f" WHERE {self.where('person', 'p.')}"])
        more = self.chance.choice(["", f" AND {self.where('visit', 'v.')}"])
        (one,), (two,) = self.columns("person")[:1], self.columns("visit")[:1]
        on = f"p.id = v.person AND p.id < 40{more}"
        return self.ordered(
            f"SELECT p.{one}, v.{two}, count(*) FROM person p {kind} visit v ON {on}{where}"
            " GROUP BY ALL",
            3,
        )

    def windowed(self) -> Statement:
        table = self.table()
        names = list(TABLES[table])
        order = ", ".join(names)
        (by,) = self.columns(table)[:1]
        work = self.chance.choice(
            [
                f"row_number() OVER (PARTITION BY {by} ORDER BY {order})",
                f"rank() OVER (ORDER BY {by})",
                f"count(*) OVER (PARTITION BY {by})",
                f"lag({names[0]}) OVER (ORDER BY {order})",
            ]
        )
        text = f"SELECT {by}, {names[0]}, {work} AS w FROM {table} WHERE {self.where(table)}"
        return self.ordered(text, 3)

    def with_query(self) -> Statement:
        table = self.table()
        columns = self.columns(table)
        text = (
            f"WITH some AS (SELECT * FROM {table} WHERE {self.where(table)}), "
            f"RECURSIVE_ AS (SELECT count(*) AS n FROM some) "
            f"SELECT {', '.join(columns)}, n FROM some, RECURSIVE_ WHERE {self.where(table)}"
        )
        return self.ordered(text, len(columns) + 1)

    def nested(self) -> Statement:
        test = self.chance.choice(
            [
                "id IN (SELECT person FROM visit WHERE {0})",
                "id NOT IN (SELECT person FROM visit WHERE {0})",
                "EXISTS (SELECT 1 FROM visit v WHERE v.person = person.id AND {0})",
                "score > (SELECT max(cost) - 60 FROM visit WHERE {0})",
            ]
        ).format(self.where("visit"))
        columns = self.columns("person")
        text = f"SELECT {', '.join(columns)} FROM person WHERE {test} AND {self.where('person')}"
        return self.ordered(text, len(columns))

    def set_operation(self) -> Statement:
        word = self.chance.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        text = (
            f"SELECT id, born FROM person WHERE {self.where('person')} {word} "
            f"SELECT person, day FROM visit WHERE {self.where('visit')}"
        )
        return self.ordered(text, 2)

    def twice(self) -> Statement:
        (one,) = self.columns("person")[:1]
        text = (
            f"SELECT a.{one}, count(b.id) FROM person a JOIN person b ON a.id = b.age "
            f"WHERE {self.where('person', 'a.')} AND {self.where('person', 'b.')} GROUP BY 1"
        )
        return self.ordered(text, 2)
