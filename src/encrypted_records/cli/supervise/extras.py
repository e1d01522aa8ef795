"""Optional dependencies of each side, and what to install if they are missing.

The package alone contains the client and the command line. Each side is an *extra*.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Literal

from encrypted_records.errors import Startup

Side = Literal["api", "proxy"]

_BOTH = ("httptools", "numpy", "prometheus_client", "re2", "starlette", "uvicorn")
_LOOP = () if sys.platform == "win32" else ("uvloop",)
#: The modules of each extra of pyproject.toml.
MODULES: dict[Side, tuple[str, ...]] = {
    "api": (
        *("argon2", "django", "drf_spectacular", "environ", "psycopg", "pyotp"),
        *("rest_framework", "rest_framework_simplejwt", "rest_registration"),
        *_BOTH,
        *_LOOP,
    ),
    "proxy": (
        *("cryptography", "jinja2", "markdown_it", "markupsafe", "mnemonic", "pyroaring"),
        *("python_multipart", "rapidfuzz", "segno", "websockets", "zstandard"),
        *_BOTH,
        *_LOOP,
    ),
}
_WHO = {"api": "the API needs", "proxy": "the proxy needs", "all": "API and proxy need"}
#: Names that an error repeats.
_SHOWN = 3


def check_installed(*sides: Side) -> None:
    """
    Raises:
        Startup: a package that one of ``sides`` needs is not there.
    """
    missing = {side: gone for side in sides if (gone := _missing(side))}
    if not missing:
        return
    packages = sorted({name for gone in missing.values() for name in gone})
    shown = ", ".join(packages[:_SHOWN])
    more = f" and {len(packages) - _SHOWN} more" if len(packages) > _SHOWN else ""
    extra = "all" if len(missing) > 1 else next(iter(missing))
    raise Startup(
        f"{_WHO[extra]} packages that are not installed: {shown}{more}",
        hint=f"install them: pip install 'encrypted-records[{extra}]'",
    )


def _missing(side: Side) -> list[str]:
    return [name for name in MODULES[side] if find_spec(name) is None]
