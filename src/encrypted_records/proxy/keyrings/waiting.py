"""Work with libraries that know no time limit, with one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """The result of ``work``, in a thread of its own.

    Raises:
        TimeoutError: it takes longer. The thread goes on, and what it returns is dropped.
        Exception: as ``work`` does.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    # A pool's thread would be waited for at the end of the process.
    thread = threading.Thread(target=run, name="keys", daemon=True)  # noqa: TID251
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]
