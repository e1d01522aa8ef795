"""Explicit encryption of the same records with libmongocrypt, where it is installed.

Strings are encrypted for equality, integers for ranges, each field under a data key of its own that
a local master key wraps: what MongoDB's Queryable Encryption makes of a record before it is stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any


def records_per_second(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """On one core; None where pymongocrypt is not installed."""
    try:
        import bson
        from bson import Binary, Int64
        from pymongocrypt.mongocrypt import MongoCryptOptions
        from pymongocrypt.synchronous.explicit_encrypter import ExplicitEncrypter
        from pymongocrypt.synchronous.state_machine import MongoCryptCallback
    except ImportError:
        return None

    class Vault(MongoCryptCallback):  # type: ignore[misc] # has no types
        def __init__(self) -> None:
            self.keys: list[bytes] = []

        def fetch_keys(self, _filter: bytes) -> list[bytes]:
            asked = bson.decode(_filter)["$or"][0]["_id"]["$in"]
            return [key for key in self.keys if bson.decode(key)["_id"] in asked]

        def insert_data_key(self, key: bytes) -> Any:
            self.keys.append(key)
            return bson.decode(key)["_id"]

        def bson_encode(self, document: Any) -> bytes:
            encoded: bytes = bson.encode(document)
            return encoded

        def collection_info(self, *_: Any) -> Any: ...
        def mark_command(self, *_: Any) -> Any: ...
        def kms_request(self, *_: Any) -> Any: ...
        def close(self) -> None: ...

    vault = Vault()
    options = MongoCryptOptions({"local": {"key": Binary(os.urandom(96))}})
    encrypter = ExplicitEncrypter(vault, options)
    names = list(rows[0])
    keys = {name: encrypter.create_data_key("local") for name in names}
    ranges = {"age": 120, "salary": 10**6, "number": 10**9}

    def encrypt(name: str, value: Any) -> None:
        more: dict[str, Any] = {}
        if name in ranges:
            value = Int64(value)
            more["range_opts"] = bson.encode(
                {"min": Int64(0), "max": Int64(ranges[name]), "sparsity": Int64(2), "trimFactor": 6}
            )
        encrypter.encrypt(
            bson.encode({"v": value}),
            "range" if name in ranges else "Indexed",
            key_id=Binary(keys[name], 4),
            contention_factor=0,
            **more,
        )

    started = time.process_time()
    for row in rows:
        for name in names:
            encrypt(name, row[name])
    return len(rows) / (time.process_time() - started)
