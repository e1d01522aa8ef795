"""Whether the extra ``sql`` is installed."""

from __future__ import annotations

from importlib.util import find_spec

from encrypted_records.errors import NotInstalled


def require_sql() -> None:
    """
    Raises:
        NotInstalled: DuckDB or pyarrow is not there.
    """
    missing = [name for name in ("duckdb", "pyarrow") if find_spec(name) is None]
    if missing:
        raise NotInstalled(
            f"SQL needs packages that are not installed: {', '.join(missing)}",
            hint="install them: pip install 'encrypted-records[sql]'",
        )
