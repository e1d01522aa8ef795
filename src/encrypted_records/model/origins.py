"""Origins, as the beginning of an absolute URL: ``http://127.0.0.1:8080``. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

#: The names by which a machine reaches itself.
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


def same_machine(origin: str) -> tuple[str, ...]:
    """The origin, and where it is one of this machine's own, the same by its other names."""
    parts = urlsplit(origin)
    name, colon, port = parts.netloc.rpartition(":")
    if not colon or "]" in port:
        name, port = parts.netloc, ""
    if name.lower() not in LOCAL_NAMES:
        return (origin,)
    end = (f":{port}" if port else "") + parts.path
    return tuple(f"{parts.scheme}://{other}{end}" for other in LOCAL_NAMES)
