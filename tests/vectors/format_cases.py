"""Fields with enforced formats, and plaintexts that are theirs or no value's."""

from __future__ import annotations

#: To be read under "formats": "enforced".
FIELDS = {
    "date": '{"type": "string", "format": "date"}',
    "time": '{"type": "string", "format": "time"}',
    "date-time": '{"type": "string", "format": "date-time"}',
    "local-date-time": '{"type": "string", "format": "local-date-time"}',
    "duration": '{"type": "string", "format": "duration"}',
    "uuid": '{"type": "string", "format": "uuid"}',
    "boolean": '{"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1}',
}
GOOD: list[tuple[str, str | None]] = [
    *(("date", one) for one in (None, "0001-01-01", "2024-02-29", "9999-12-31")),
    *(("time", one) for one in (None, "00:00:00", "08:30:00.5", "23:59:59.999999")),
    ("date-time", None),
    ("date-time", "0001-01-01T00:00:00Z"),
    ("date-time", "2024-02-29T23:59:59.999999-12:00"),
    ("date-time", "2026-01-31T08:30:00+02:00"),
    ("date-time", "2026-01-31T06:30:00Z"),
    ("date-time", "9999-12-31T23:59:59.999999Z"),
    ("date-time", "9999-12-31T23:59:59.999999+23:59"),
    ("uuid", None),
    ("uuid", "00000000-0000-0000-0000-000000000000"),
    ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    *(("local-date-time", one) for one in (None, "0001-01-01T00:00:00", "2026-01-31T08:30:00.25")),
    ("local-date-time", "9999-12-31T23:59:59.999999"),
    *(("duration", one) for one in (None, "PT0S", "PT0.000001S", "-PT0.000001S", "P1DT2H3M4.5S")),
    *(("duration", one) for one in ("P100000000D", "-P100000000D", "-P1DT23H59M59.999999S")),
    *(("boolean", one) for one in (None, "true", "false")),
]
BAD: list[tuple[str, str, str]] = [
    ("a day beyond the year 9999", "date", "04" + "000000000037b9db"),
    ("an integer for a date", "date", "01" + "00" * 8),
    ("a time for a date", "date", "05" + "00" * 8),
    ("the microsecond after the day", "time", "05" + "000000141dd76000"),
    ("an instant without its offset", "date-time", "06" + "00" * 8),
    ("an offset of a whole day", "date-time", "06" + "0080000000000000" + "0b3f"),
    ("a local time before the year 1", "date-time", "06" + "00" * 8 + "0000"),
    ("an instant beyond the year 9999", "date-time", "06" + "0461158000000000" + "059f"),
    ("a uuid cut short", "uuid", "07" + "00" * 15),
    ("a uuid as a string", "uuid", "03" + "80" + "00" * 15),
    ("absent as a string's, of a uuid", "uuid", "00" * 33),
    ("a local time beyond the year 9999", "local-date-time", "0a" + "0461158000000000"),
    ("an instant for a local time", "local-date-time", "06" + "00" * 8),
    ("a duration beyond its days", "duration", "09" + "efcee47256c00001"),
    ("a time for a duration", "duration", "05" + "00" * 8),
    ("a boolean beyond true", "boolean", "08" + "0000000000000002"),
    ("an integer for a boolean", "boolean", "01" + "0000000000000001"),
]
