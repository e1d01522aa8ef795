"""MessagePack in its shortest forms: integers, strings, binary, arrays."""

from __future__ import annotations

from typing import Any


def pack(value: Any) -> bytes:
    if isinstance(value, bool):
        raise TypeError("no struct holds booleans")
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, str):
        data = value.encode()
        return (
            bytes((0xA0 | len(data),)) + data
            if len(data) < 32
            else _sized(data, (0xD9, 0xDA, 0xDB))
        )
    if isinstance(value, bytes):
        return _sized(value, (0xC4, 0xC5, 0xC6))
    if isinstance(value, list | tuple):
        count = len(value)
        if count < 16:
            head = bytes((0x90 | count,))
        elif count < 2**16:
            head = b"\xdc" + count.to_bytes(2, "big")
        else:
            head = b"\xdd" + count.to_bytes(4, "big")
        return head + b"".join(pack(item) for item in value)
    raise TypeError(type(value))


def _integer(value: int) -> bytes:
    assert value >= 0
    if value < 128:
        return bytes((value,))
    for code, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        if value < 2 ** (8 * size):
            return bytes((code,)) + value.to_bytes(size, "big")
    raise OverflowError(value)


def _sized(data: bytes, codes: tuple[int, int, int]) -> bytes:
    for code, size in zip(codes, (1, 2, 4), strict=True):
        if len(data) < 2 ** (8 * size):
            return bytes((code,)) + len(data).to_bytes(size, "big") + data
    raise OverflowError(len(data))
