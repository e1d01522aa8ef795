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


def unpack(data: bytes) -> Any:
    """Undo :func:`pack`; ValueError for anything that it does not make."""
    try:
        value, rest = _take(data)
        if rest or pack(value) != data:
            raise ValueError("another spelling")
    except (IndexError, RecursionError, TypeError, UnicodeDecodeError):
        raise ValueError("not of these types") from None
    return value


def _take(data: bytes) -> tuple[Any, bytes]:
    code, rest = data[0], data[1:]
    if code < 0x80:
        return code, rest
    if 0x90 <= code < 0xA0:
        return _items(code & 15, rest)
    if 0xA0 <= code < 0xC0:
        return rest[: code & 31].decode(), rest[code & 31 :]
    for first, kind in ((0xC4, "bytes"), (0xCC, "int"), (0xD9, "str"), (0xDC - 1, "list")):
        size = 2 ** (code - first)
        if 0 <= code - first < (4 if kind == "int" else 3) and not (kind == "list" and size == 1):
            number = int.from_bytes(rest[:size], "big")
            rest = rest[size:]
            if kind == "int":
                return number, rest
            if kind == "list":
                return _items(number, rest)
            part = rest[:number]
            return part if kind == "bytes" else part.decode(), rest[number:]
    raise TypeError(code)


def _items(count: int, data: bytes) -> tuple[list[Any], bytes]:
    if count > len(data):
        raise IndexError
    found = []
    for _ in range(count):
        item, data = _take(data)
        found.append(item)
    return found, data
