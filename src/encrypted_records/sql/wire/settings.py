"""Settings of a session, for `SET` and `SHOW`.

Results are always in UTF-8, UTC and ISO dates. Other values are refused with the setting's name, so
that the client never misreads a result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from encrypted_records.sql.failures import Failure
from encrypted_records.sql.wire.statements import SqlStatement, SqlToken

#: PostgreSQL's version for clients that compare it.
VERSION = "15.0"
VERSION_NUMBER = "150000"

_DEFAULTS: Mapping[str, str] = {
    "application_name": "",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "cursor_tuple_fraction": "0.1",
    "datestyle": "ISO, MDY",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "on",
    "enable_seqscan": "on",
    "escape_string_warning": "on",
    "extra_float_digits": "1",
    "geqo": "on",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "is_superuser": "off",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lock_timeout": "0",
    "max_identifier_length": "63",
    "max_parallel_workers_per_gather": "2",
    "plan_cache_mode": "auto",
    "random_page_cost": "4",
    "max_index_keys": "32",
    "row_security": "on",
    "search_path": "public",
    "server_encoding": "UTF8",
    "server_version": VERSION,
    "server_version_num": VERSION_NUMBER,
    "session_authorization": "",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "synchronize_seqscans": "on",
    "timezone": "UTC",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
    "work_mem": "4MB",
}
#: Settings whose values have no effect here.
_FREE = frozenset(
    {"application_name", "client_min_messages", "cursor_tuple_fraction",
     "default_transaction_deferrable", "default_transaction_isolation",
     "default_transaction_read_only", "enable_seqscan", "escape_string_warning",
     "extra_float_digits", "geqo", "idle_in_transaction_session_timeout", "idle_session_timeout",
     "jit", "lock_timeout", "max_parallel_workers_per_gather", "plan_cache_mode",
     "random_page_cost", "row_security", "synchronize_seqscans", "transaction_isolation",
     "work_mem"}
)  # fmt: skip
#: Settings with a fixed value, in the clients' spelling.
_FIXED: Mapping[str, str] = {
    "bytea_output": r"hex",
    "client_encoding": r"'?(utf-?8|unicode|sql_ascii)'?",
    "datestyle": r"iso([, ]+(mdy|dmy|ymd|us|european|noneuropean))?",
    "standard_conforming_strings": r"on|true|1|yes",
    "timezone": r"(etc/)?(utc|gmt|z|zulu|universal|uct)|default|local"
    r"|(interval )?[+-]?0+(:00)?( hour to minute)?",
    "transaction_read_only": r"on|true|1|yes",
}
#: Schemas of a search path without effect: they contain no tables of records.
_EVERYWHERE = frozenset({"", "public", "$user", "pg_catalog", "information_schema"})
_ALIASES = {"names": "client_encoding", "time_zone": "timezone"}
#: Settings that PostgreSQL reports when they change (GUC_REPORT).
REPORTED: Mapping[str, str] = {
    "application_name": "application_name",
    "client_encoding": "client_encoding",
    "datestyle": "DateStyle",
    "default_transaction_read_only": "default_transaction_read_only",
    "in_hot_standby": "in_hot_standby",
    "integer_datetimes": "integer_datetimes",
    "intervalstyle": "IntervalStyle",
    "is_superuser": "is_superuser",
    "server_encoding": "server_encoding",
    "server_version": "server_version",
    "session_authorization": "session_authorization",
    "standard_conforming_strings": "standard_conforming_strings",
    "timezone": "TimeZone",
}


class SessionSettings:
    """The settings of one session."""

    def __init__(self, user: str, dataset: str) -> None:
        self._path = {*_EVERYWHERE, dataset.casefold()}
        of_session = {"session_authorization": user, "search_path": dataset}
        self._first = {**_DEFAULTS, **of_session}
        self._values = dict(self._first)

    def show(self, name: str) -> str:
        """
        Raises:
            Failure: there is no such setting.
        """
        name = _ALIASES.get(name.lower(), name.lower())
        try:
            return self._values[name]
        except KeyError:
            hint = "SHOW ALL lists the settings, and information_schema.tables the tables"
            raise Failure(
                "42704", f"unrecognized configuration parameter {name!r}", hint=hint
            ) from None

    def all(self) -> Sequence[tuple[str, str]]:
        return sorted(self._values.items())

    def put(self, name: str, value: str) -> str:
        """Change a setting; returns its name.

        Raises:
            Failure: there is no such setting, or its value is fixed.
        """
        name = _ALIASES.get(name.lower(), name.lower())
        before = self.show(name)
        if name == "statement_timeout":
            self._values[name] = str(_milliseconds(value))
        elif name == "search_path":
            self._values[name] = self._checked_path(value)
        elif name == "intervalstyle":
            self._values[name] = _interval_style(value)
        elif name in _FREE:
            self._values[name] = value[:1_000]
        elif name not in _FIXED:
            raise Failure("55P02", f"parameter {name!r} cannot be changed")
        elif not re.fullmatch(_FIXED[name], value.strip(), re.IGNORECASE):
            raise Failure(
                "22023",
                f"parameter {name!r} is {before!r} here and has no other value",
                hint="times are shown in UTC: convert them in SQL with AT TIME ZONE"
                if name == "timezone"
                else "",
            )
        return name

    def _checked_path(self, value: str) -> str:
        """
        Raises:
            Failure: unqualified names would mean another dataset's tables.
        """
        named = {part.strip().strip("\"'").casefold() for part in value.split(",")}
        if not named <= self._path:
            raise Failure(
                "3F000",
                "names without a schema are those of the database's own: search_path has no other",
                hint="write the schema before the table's name, or connect to that database",
            )
        return value[:1_000]

    def reset(self, name: str | None = None) -> None:
        """Reset one setting, or all, to the value at the session's start."""
        if name is None:
            self._values = dict(self._first)
        else:
            name = _ALIASES.get(name.lower(), name.lower())
            self.show(name)
            self._values[name] = self._first[name]

    @property
    def iso_intervals(self) -> bool:
        return self._values["intervalstyle"] == "iso_8601"

    @property
    def statement_milliseconds(self) -> int:
        """The client's limit, 0 for none."""
        return int(self._values["statement_timeout"])


def _interval_style(value: str) -> str:
    wanted = value.strip().lower()
    if wanted in ("postgres", "iso_8601"):
        return wanted
    raise Failure("22023", "parameter 'intervalstyle' is postgres or iso_8601 here")


def start(user: str, dataset: str, parameters: Mapping[str, str]) -> SessionSettings:
    """The settings of a session whose client sent these parameters at its start.

    The time zone is ignored: drivers send the machine's zone by default, and the session reports
    UTC.

    Raises:
        Failure: an unsupported encoding or date style.
    """
    settings = SessionSettings(user, dataset)
    for name, value in parameters.items():
        lowered = name.lower()
        if lowered in ("user", "database", "options", "replication", "timezone"):
            continue
        if lowered in _DEFAULTS:
            settings.put(lowered, value)
    for name, value in _options(parameters.get("options", "")):
        if name.lower() in _DEFAULTS and name.lower() != "timezone":
            settings.put(name, value)
    settings._first = dict(settings._values)
    return settings


def _options(text: str) -> list[tuple[str, str]]:
    """Settings of ``-c name=value`` and ``--name=value``."""
    found = re.findall(r"(?:-c\s*|--)([\w-]+)=((?:\\.|[^\s\\])*)", text)
    return [(name.replace("-", "_"), re.sub(r"\\(.)", r"\1", value)) for name, value in found]


def _milliseconds(value: str) -> int:
    found = re.fullmatch(r"\s*(\d{1,10})\s*(us|ms|s|min|h|d)?\s*", value)
    if found is None:
        raise Failure("22023", "invalid value for parameter 'statement_timeout'")
    factor = {"us": 0.001, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    return int(int(found[1]) * factor[found[2] or "ms"])


def assignment(statement: SqlStatement) -> tuple[str, str] | None:
    """The name and the value of a SET; None if it has no effect here, such as the isolation of
    read-only transactions.

    Raises:
        Failure: it cannot be read.
    """
    words = list(statement.words[1:])
    if words and words[0].word in ("session", "local") and len(words) > 1:
        if words[1].word in ("characteristics", "authorization"):
            _check_characteristics(words)
            return None
        words = words[1:]
    if not words:
        raise Failure("42601", "syntax error in SET")
    if words[0].word in ("transaction", "role", "constraints"):
        _check_characteristics(words)
        return None
    if words[0].word == "names":
        return "client_encoding", words[1].value if len(words) > 1 else "UTF8"
    if words[0].word == "time" and len(words) > 2:
        return "timezone", _value(words[2:])
    name, at = _dotted(words)
    if len(words) <= at + 1 or words[at].word not in ("=", "to"):
        raise Failure("42601", "syntax error in SET")
    return name, _value(words[at + 1 :])


def _dotted(words: Sequence[SqlToken]) -> tuple[str, int]:
    name, at = words[0].word, 1
    while len(words) > at + 1 and words[at].text == ".":
        name, at = f"{name}.{words[at + 1].word}", at + 2
    return name, at


def _value(words: Sequence[SqlToken]) -> str:
    return " ".join(token.value for token in words).replace(" ,", ",").replace("- ", "-")


def _check_characteristics(words: Sequence[SqlToken]) -> None:
    """
    Raises:
        Failure: the transaction would write, or the session would change its user.
    """
    texts = [token.value.lower() for token in words]
    if "write" in texts:
        raise Failure("25006", "a transaction here is read only")
    if "authorization" in texts and texts[-1] != "default":
        raise Failure("42501", "a session keeps the user of its login")
    if texts[0] == "role" and texts[-1] not in ("none", "default"):
        raise Failure("42501", "a session keeps the user of its login")
