"""Makes hashes of passwords cheap, in processes that have this folder in PYTHONPATH.

Python imports a module of this name whenever it starts. An account and its first token cost an API
four hashes of the strength ``light``, at 25 ms of processor time each: three quarters of what a new
account costs. The strength ``standard`` stays as it is. No setting of the service leads here, and
no package has this folder.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

HASHING = "encrypted_records.server.accounts.hashing"


class CheapHashing:
    """Finds the module with the strengths, and lowers one of them to the least that Argon2 has."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != HASHING:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_lower(module: ModuleType) -> None:
            load(module)
            module.Light.time_cost, module.Light.memory_cost = 1, 8

        spec.loader.exec_module = load_and_lower  # type: ignore[method-assign]
        return spec


# Not where a test imports this.
if __name__ == "sitecustomize":
    sys.meta_path.insert(0, CheapHashing)
