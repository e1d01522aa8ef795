"""What kind of records a file holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from encrypted_records.errors import InvalidSetting
from encrypted_records.model.media_types import Format


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """
    Raises:
        InvalidSetting: the file cannot be read.
    """
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it fails").lower()
        raise InvalidSetting(f"{file} cannot be read: {why}") from error


def media_type_of(file: Path) -> str:
    """The media type of a file: by its name, or else by its first bytes.

    Raises:
        InvalidSetting: it cannot be read.
    """
    with reading(file), file.open("rb") as opened:
        return Format.of_file(str(file), opened.read(1 << 10)).media_type
