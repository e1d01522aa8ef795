"""A lexer for clients' statements: splits a text, and classifies each statement by its first words.

This is not a parser. It only recognises commands that the listener answers itself (settings,
transactions, cursors, `COPY ... TO STDOUT`) and commands that are refused because they would write;
possible queries go to the engine, which checks them again with DuckDB's parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from encrypted_records.sql.failures import Failure

_TOKEN = re.compile(
    r"""
      (?P<space>\s+ | --[^\n]*)
    | (?P<comment>/\*)
    | (?P<string>(?:[eE]'(?:[^'\\]|\\.|'')*' | (?:[uU]&|[bBxX])?'(?:[^']|'')*'))
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<dollar>\$(?P<tag>[A-Za-z_\x80-\U0010ffff][\w]*)?\$)
    | (?P<parameter>\$\d+)
    | (?P<number>\d[\w.]*)
    | (?P<word>[A-Za-z_\x80-\U0010ffff][\w$]*)
    | (?P<cast>::)
    | (?P<sign>(?:(?!--|/\*)[<>=!~*/%^&|@#?+-])+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


#: Characters after a backslash in ``E'...'``, such as COPY's ``DELIMITER E'\\t'``.
_SIGNS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class SqlToken:
    """``kind`` is a group of the lexer's expression; ``start`` and ``end`` are places in the
    text."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """An identifier's name; other tokens unchanged."""
        if self.kind == "word":
            return self.text.lower()
        if self.kind == "quoted":
            return self.text[1:-1].replace('""', '"')
        return self.text

    @property
    def value(self) -> str:
        """A word or a string without its quotes."""
        if self.kind == "string":
            text = self.text[self.text.index("'") + 1 : -1].replace("''", "'")
            if self.text[0] in "eE":
                text = re.sub(r"\\(.)", lambda sign: _SIGNS.get(sign[1], sign[1]), text)
            return text
        return self.word

    @property
    def number(self) -> int:
        """The number of a parameter; a number with many digits counts as beyond every limit."""
        return int(self.text[1:8])


def tokens(sql: str) -> Iterator[SqlToken]:
    """The tokens of a text, without blanks and comments. Unterminated strings and comments are not
    detected here: DuckDB reports them.
    """
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        assert found is not None
        kind, end = str(found.lastgroup), found.end()
        if kind == "comment":
            at = _after_comment(sql, at)
            continue
        if found["dollar"] is not None:
            kind = "string"
            close = sql.find(found["dollar"], end)
            end = len(sql) if close < 0 else close + len(found["dollar"])
        if kind != "space":
            yield SqlToken(kind, sql[at:end], at, end)
        at = end


def _after_comment(sql: str, at: int) -> int:
    depth = 0
    for found in re.finditer(r"/\*|\*/", sql[at:]):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return at + found.end()
    return len(sql)


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """A statement. ``words`` are its tokens; an empty query has none."""

    sql: str
    words: Sequence[SqlToken] = field(repr=False)

    @property
    def first(self) -> str:
        return self.words[0].word if self.words else ""


def split(sql: str) -> list[SqlStatement]:
    """The statements of a text, without empty ones."""
    statements: list[SqlStatement] = []
    current: list[SqlToken] = []
    for token in tokens(sql):
        if token.text == ";":
            if current:
                statements.append(_statement(sql, current))
            current = []
        else:
            current.append(token)
    if current:
        statements.append(_statement(sql, current))
    return statements


def only(sql: str) -> SqlStatement:
    """The only statement of a text.

    Raises:
        Failure: 42601; there is none, or there are several.
    """
    found = split(sql)
    if len(found) != 1:
        raise Failure("42601", "syntax error: one query is expected")
    return found[0]


def without_database(statement: SqlStatement, dataset: str, *, namesake: bool) -> str:
    """A statement without the database in front of its schema, which has the same name:
    ``clinic.clinic.patient``. Excel, Power BI and dbt write names in this way.

    Args:
        namesake: whether the dataset has a table of its own name, of which ``clinic.clinic.id`` may
            be a column.
    """
    name, words, base = dataset.casefold(), statement.words, statement.words[0].start
    parts, at, before = [], 0, ""
    for place, token in enumerate(words):
        if token.word.casefold() == name and before != ".":
            after = [word.word.casefold() for word in words[place + 1 : place + 6]]
            is_table = not namesake or before in ("from", "join") or after[4:] == ["."]
            if after[:3] == [".", name, "."] and is_table:
                parts.append(statement.sql[at : token.start - base])
                at = words[place + 2].start - base
        before = token.word
    return "".join(parts) + statement.sql[at:]


#: Patterns for dates and times that PostgreSQL and DuckDB read and write alike, in DuckDB's form.
_PATTERNS = {
    "YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S", "MS": "%g",
    "US": "%f",
}  # fmt: skip
_FORMAT = re.compile(rf"""({"|".join(_PATTERNS)})|"([^"]*)"|([-/,.:; ])|.""", re.IGNORECASE)
#: Functions with a format: DuckDB's function, and the cast to PostgreSQL's type.
_FORMATTED = {
    "to_char": ("strftime", ""),
    "to_date": ("strptime", "::DATE"),
    "to_timestamp": ("strptime", "::TIMESTAMPTZ"),
}


def with_duckdb_formats(statement: SqlStatement) -> str:
    """A statement with DuckDB's functions for ``to_char``, ``to_date`` and ``to_timestamp`` if they
    have a string as format. Superset limits every chart to a period in this way.

    Raises:
        Failure: 0A000; the two may read a format differently.
    """
    words, base = statement.words, statement.words[0].start
    changed: dict[SqlToken, str] = {}
    calls: list[tuple[SqlToken, int]] = []
    for place, token in enumerate(words):
        if token.text == "(":
            calls.append((words[place - 1], place))
        elif token.text == ")" and calls:
            name, opened = calls.pop()
            last = words[place - 1]
            if name.word not in _FORMATTED or last.kind != "string" or place - 2 <= opened:
                continue
            if words[place - 2].text == ",":
                function, cast = _FORMATTED[name.word]
                changed |= {name: function, token: f"){cast}"}
                changed[last] = f"'{_duckdb_format(name.word, last.value)}'"
    parts, at = [], 0
    for token in sorted(changed, key=lambda each: each.start):
        parts += [statement.sql[at : token.start - base], changed[token]]
        at = token.end - base
    return "".join(parts) + statement.sql[at:]


def _duckdb_format(function: str, given: str) -> str:
    parts = []
    for found in _FORMAT.finditer(given):
        pattern, quoted, separator = found.groups()
        if pattern is not None:
            parts.append(_PATTERNS[pattern.upper()])
        elif quoted is not None:
            parts.append(quoted.replace("%", "%%").replace("'", "''"))
        elif separator is not None:
            parts.append(separator)
        else:
            known = ", ".join(_PATTERNS)
            detail = f"{function} takes the patterns {known} here, not {given!r}"
            instead = _FORMATTED[function][0]
            raise Failure("0A000", detail, hint=f"{instead} of DuckDB has more patterns")
    # Without a year, the two assume different years.
    if function != "to_char" and "%Y" not in parts:
        raise Failure("0A000", f"{function} needs a format with a year, YYYY, not {given!r}")
    return "".join(parts)


def _statement(sql: str, words: Sequence[SqlToken]) -> SqlStatement:
    return SqlStatement(sql[words[0].start : words[-1].end], words)


#: First words of statements that only read, and that the engine checks.
READS = frozenset(
    {"select", "with", "values", "table", "from", "explain", "describe", "summarize", "pivot",
     "unpivot", "("}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Declared:
    """``DECLARE name CURSOR FOR query``."""

    name: str
    query: SqlStatement


def declared(statement: SqlStatement) -> Declared:
    """
    Raises:
        Failure: it declares no cursor, or a cursor for something other than a query.
    """
    words = [token.word for token in statement.words]
    if "cursor" not in words[:8] or "for" not in words[:10] or len(words) < 5:
        raise Failure("42601", "syntax error in DECLARE")
    at = words.index("for", words.index("cursor"))
    query = statement.words[at + 1 :]
    if not query or query[0].word not in READS:
        raise Failure("42601", "a cursor is declared for a query only")
    start = query[0].start - statement.words[0].start
    return Declared(words[1], SqlStatement(statement.sql[start:], query))


@dataclass(frozen=True, slots=True)
class Fetched:
    """``FETCH count FROM name``; ``rows`` is 0 for ALL."""

    name: str
    rows: int


def fetched(statement: SqlStatement) -> Fetched:
    """
    Raises:
        Failure: it is not a FETCH, or its direction is not forward.
    """
    words = [token.word for token in statement.words[1:]]
    rows = 1
    if words and words[0] in ("forward", "next"):
        words = words[1:]
    if words and words[0] == "all":
        rows, words = 0, words[1:]
    elif words and words[0].isdecimal():
        # FETCH 0 asks for the current row, which a forward-only cursor no longer has.
        # More digits are beyond every result, and Python refuses thousands of them.
        rows, words = int(words[0][:18]), words[1:]
        if rows == 0:
            raise Failure("0A000", "FETCH 0 is not supported")
    if words and words[0] in ("from", "in"):
        words = words[1:]
    if len(words) != 1:
        raise Failure("0A000", "cursors go forward only: FETCH FORWARD count FROM name")
    return Fetched(words[0], rows)


#: Characters with a meaning in COPY's text format: a backslash, and those that may follow it.
_ESCAPED = "\\.abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class Copy:
    """``COPY (query) TO STDOUT``; ``form`` is ``text``, ``csv`` or ``binary``. ``forced`` are names
    of columns whose values are always quoted, or a star for all.
    """

    query: str
    form: str
    header: bool
    delimiter: str
    null: str
    quote: str
    escape: str
    forced: Sequence[str]


def copied(statement: SqlStatement) -> Copy:
    """
    Raises:
        Failure: it writes, or uses a file or an unsupported option.
    """
    source, after_source = _copy_source(statement)
    if len(after_source) < 2 or after_source[0].word != "to":
        raise Failure("25006", "cannot execute COPY FROM in a read-only transaction")
    if after_source[1].word != "stdout":
        raise Failure("42501", "COPY writes to STDOUT only, never to a file or program")
    given = _copy_options(after_source[2:])
    options = {name: values[0] if values else "" for name, values in given.items()}
    form = options.pop("format", "text").lower()
    if form not in ("text", "csv", "binary"):
        raise Failure("22023", "COPY format is not text, csv or binary")
    header = options.pop("header", "false").lower() in ("true", "on", "1", "")
    delimiter = options.pop("delimiter", "," if form == "csv" else "\t")
    null = options.pop("null", "" if form == "csv" else "\\N")
    of_csv = sorted({"escape", "force_quote", "quote"} & set(options))
    if of_csv and form != "csv":
        raise Failure("0A000", f"COPY {of_csv[0]} is available only in CSV mode")
    quote = options.pop("quote", '"')
    escape = options.pop("escape", quote)
    options.pop("force_quote", None)
    options.pop("encoding", None)
    if options:
        raise Failure("0A000", f"COPY has no option {min(options)} here")
    if any(len(sign) != 1 or sign in "\r\n" for sign in (delimiter, quote, escape)):
        raise Failure("22023", "COPY delimiter, quote and escape are one character, no line end")
    if (form == "csv" and delimiter == quote) or any(end in null for end in "\r\n"):
        raise Failure("22023", "COPY delimiter and quote must be different, NULL without line ends")
    if form == "text" and delimiter in _ESCAPED:
        raise Failure("22023", f"COPY delimiter cannot be {delimiter!r}: it is part of an escape")
    if delimiter in null or (form == "csv" and quote in null):
        raise Failure("22023", "COPY delimiter and quote must not be in the NULL specification")
    return Copy(source, form, header, delimiter, null, quote, escape, given.get("force_quote", ()))


def _copy_source(statement: SqlStatement) -> tuple[str, Sequence[SqlToken]]:
    """The query, and the words after it."""
    words, base = statement.words, statement.words[0].start
    depth = 0
    for at, token in enumerate(words[1:], 1):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and at == 1:
            break
        if depth == 0:
            return statement.sql[words[1].end - base : token.start - base], words[at + 1 :]
    # A table, optionally with columns in parentheses.
    ends = [at for at, token in enumerate(words) if token.word in ("to", "from")]
    if not ends:
        raise Failure("42601", "syntax error in COPY")
    named = list(words[1 : ends[0]])
    opening = next((at for at, token in enumerate(named) if token.text == "("), len(named))
    if not named[:opening]:
        raise Failure("42601", "syntax error in COPY")
    table = statement.sql[named[0].start - base : named[opening - 1].end - base]
    columns = "*"
    if opening < len(named):
        columns = statement.sql[named[opening].end - base : named[-1].start - base]
    return f"SELECT {columns} FROM {table}", words[ends[0] :]  # noqa: S608 - the client's own


def _copy_options(words: Sequence[SqlToken]) -> dict[str, list[str]]:
    """Options with their values: of ``WITH (FORMAT csv, HEADER)`` and of the older ``CSV HEADER``,
    whose options follow each other without commas.
    """
    words = [token for token in words if token.word != "with"]
    options: dict[str, list[str]] = {}
    if words and words[0].text == "(":
        name, depth = "", 0
        for token in words[1:-1]:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == "," and depth == 0:
                name = ""
            elif not name:
                name = token.word.lower()
                options[name] = []
            elif token.text not in ("(", ")", ","):
                options[name].append(token.value)
        return options
    name = ""
    for token in words:
        if token.word in ("csv", "binary"):
            options["format"] = [token.word]
        elif token.kind == "word" and token.word in _OLDER_OPTIONS:
            name = "force_quote" if name == "force" else token.word
            options.pop("force", None)
            options[name] = []
        elif name and (token.kind in ("string", "quoted") or name == "force_quote"):
            options[name] += [] if token.text == "," else [token.value]
        elif token.word != "as":
            raise Failure("42601", f'syntax error at or near "{token.text[:40]}" in COPY')
    return options


_OLDER_OPTIONS = frozenset({"header", "delimiter", "null", "quote", "escape", "encoding", "force"})
