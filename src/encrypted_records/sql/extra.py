"""The extras ``sql`` and ``mcp``, which may not be installed."""

from __future__ import annotations

from importlib.util import find_spec

from encrypted_records.errors import NotInstalled


def require_sql() -> None:
    """
    Raises:
        NotInstalled: DuckDB or pyarrow is missing.
    """
    _require("SQL", "sql", "duckdb", "pyarrow")


def require_mcp() -> None:
    """
    Raises:
        NotInstalled: DuckDB, pyarrow or the Model Context Protocol's package is missing.
    """
    _require("ers mcp", "sql,mcp", "duckdb", "pyarrow", "mcp")


def _require(who: str, extra: str, *modules: str) -> None:
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise NotInstalled(
            f"{who} needs packages that are not installed: {', '.join(missing)}",
            hint=f"install them: pip install 'encrypted-records[{extra}]'",
        )
