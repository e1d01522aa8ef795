"""A process that reads a Parquet, Arrow or Feather file for ``ers``: from stdin, which must be
seekable, to an Arrow stream of small record batches on stdout.

A few bytes of such a file can stand for gigabytes, and the file's own metadata about that may be
wrong. So nothing is computed from it. On every system, Arrow counts the memory that it allocates
before it writes to it; and a separate process can end when that is too much, wherever in the
library it is. A crash of the library, for example because the file is truncated meanwhile, does not
end the command either.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

#: Exit codes besides 0: the memory limit is exceeded; the file is not of its format; or it cannot
#: be read, with the number of the error added.
TOO_MUCH, DAMAGED, UNREADABLE = 3, 4, 64
#: Maximum rows and bytes of a batch.
_ROWS = 10_000
_BATCH_BYTES = 32 << 20
#: Seconds between checks of the allocated memory.
_CHECK_INTERVAL = 0.002


def main() -> NoReturn:
    """Write the batches of stdin to stdout. The first argument is the format, "parquet" or "arrow",
    and the second the limit of allocated memory in bytes.
    """
    import pyarrow  # noqa: PLC0415 - who starts this imports the rest without it

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this
    kind, most = sys.argv[1], int(sys.argv[2])
    threading.Thread(target=_watch, args=(most,), daemon=True).start()
    ending = 0
    try:
        _copy(_read_parquet if kind == "parquet" else _read_arrow)
    except BrokenPipeError:
        pass  # the reader has closed the pipe
    except MemoryError:
        ending = TOO_MUCH
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        ending = DAMAGED if number is None else UNREADABLE + number
    os._exit(ending)


def _watch(most: int) -> None:
    import pyarrow  # noqa: PLC0415

    pool = pyarrow.default_memory_pool()
    while pool.bytes_allocated() <= most:
        time.sleep(_CHECK_INTERVAL)
    os._exit(TOO_MUCH)


def _copy(read: Callable[[Any], tuple[Any, Iterator[Any]]]) -> None:
    import pyarrow  # noqa: PLC0415

    mapped = mmap.mmap(0, 0, access=mmap.ACCESS_READ)
    schema, batches = read(pyarrow.py_buffer(mapped))
    with os.fdopen(1, "wb") as out, pyarrow.ipc.new_stream(out, schema) as writer:
        for batch in batches:
            for part in _cut(batch):
                writer.write_batch(part)


def _cut(batch: Any) -> Iterator[Any]:
    """The batch in small parts, whatever its size in the file."""
    size = sum(_bytes_of(column) for column in batch.columns)
    rows = max(batch.num_rows * _BATCH_BYTES // max(size, _BATCH_BYTES), 1)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _bytes_of(column: Any) -> int:
    """Bytes of a column, without texts that its rows share."""
    from pyarrow import types  # noqa: PLC0415

    stored = column.indices if types.is_dictionary(column.type) else column
    return int(stored.nbytes)


def _read_parquet(content: Any) -> tuple[Any, Iterator[Any]]:
    import pyarrow  # noqa: PLC0415
    from pyarrow import parquet, types  # noqa: PLC0415

    opened = parquet.ParquetFile(pyarrow.BufferReader(content))
    schema, metadata = opened.schema_arrow, opened.metadata
    folded = [
        field.name
        for field in schema
        if (types.is_string(field.type) or types.is_binary(field.type))
        and _may_stay_folded(metadata, field.name)
    ]
    fixed = [field.type for field in schema if types.is_fixed_size_binary(field.type)]
    width = sum(kind.byte_width for kind in fixed)
    # A text that all rows share is stored once, and stays so: unfolded, 58 kB become 10 GB.
    opened = parquet.ParquetFile(
        pyarrow.BufferReader(content), metadata=metadata, read_dictionary=folded
    )

    def batches() -> Iterator[Any]:
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            row_bytes = max(group.total_byte_size // max(group.num_rows, 1), width, 1)
            rows = min(max(_BATCH_BYTES // row_bytes, 1), _ROWS)
            yield from opened.iter_batches(rows, row_groups=[number])

    return opened.schema_arrow, batches()


def _may_stay_folded(metadata: Any, column: str) -> bool:
    """Whether the encoding of a column's values allows reading it as a dictionary."""
    known = {"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED"}
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = (group.column(at) for group in groups for at in range(group.num_columns))
    return all(
        known.issuperset(chunk.encodings) for chunk in chunks if chunk.path_in_schema == column
    )


def _read_arrow(content: Any) -> tuple[Any, Iterator[Any]]:
    import pyarrow  # noqa: PLC0415

    source = pyarrow.BufferReader(content)
    try:
        opened = pyarrow.ipc.open_file(source)
        batches = (opened.get_batch(at) for at in range(opened.num_record_batches))
    except pyarrow.ArrowInvalid:  # the streaming format has no directory
        source.seek(0)
        opened = pyarrow.ipc.open_stream(source)
        batches = iter(opened)

    def checked() -> Iterator[Any]:
        for batch in batches:
            batch.validate(full=True)  # else places beyond its end would be read
            yield batch

    return opened.schema, checked()


if __name__ == "__main__":
    main()
