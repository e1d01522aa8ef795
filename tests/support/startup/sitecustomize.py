"""Makes hashes and keys of passwords cheap, in processes that have this folder in PYTHONPATH.

Python imports a module of this name whenever it starts. An account and its first token cost an API
four hashes of the strength ``light``, at 25 ms of processor time each: three quarters of what a new
account costs. The strength ``standard`` stays as it is. A keyring under a passphrase took 0.22 s
whenever it was written or read. No setting of the service leads here, and no package has this
folder.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

HASHING = "encrypted_records.server.accounts.hashing"


def _lower_strength(hashing: ModuleType) -> None:
    hashing.Light.time_cost, hashing.Light.memory_cost = 1, 8


def _lower_cost(recovery: ModuleType) -> None:
    recovery.Passphrase.__init__.__kwdefaults__["cost"] = recovery.KdfCost(8192, 1, 1)


LOWERED = {
    HASHING: _lower_strength,
    "encrypted_records.crypto.recovery": _lower_cost,
}


class CheapHashing:
    """Finds the modules with costs, and lowers them to the least that there is."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in LOWERED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_lower(module: ModuleType) -> None:
            load(module)
            LOWERED[name](module)

        spec.loader.exec_module = load_and_lower  # type: ignore[method-assign]
        return spec


# Not where a test imports this.
if __name__ == "sitecustomize":
    sys.meta_path.insert(0, CheapHashing)
