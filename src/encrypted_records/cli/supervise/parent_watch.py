"""A child of ``ers up`` ends when ``ers up`` has ended, even if that was killed.

The parent keeps the writing end of a pipe and says nothing; the child inherits the reading end.
The operating system closes the writing end with the parent, whatever ended it, and the child
reads end of file.
"""

from __future__ import annotations

import os
import signal
import threading
import time

#: Names the inherited descriptor to the child.
VARIABLE = "ERS_PARENT_PIPE"
#: Seconds that a child whose parent is gone may take for an orderly end.
GRACE_SECONDS = 8.0


def end_with_parent() -> None:
    """Watch the parent, if this process was started by ``ers up``; otherwise do nothing."""
    descriptor = os.environ.pop(VARIABLE, "")
    if descriptor.isdecimal():
        os.set_inheritable(int(descriptor), False)
        threading.Thread(
            target=_watch, args=(int(descriptor),), name="parent-watch", daemon=True
        ).start()


def _watch(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1):
            pass
    except OSError:
        return  # not a pipe of ours: somebody set the variable by hand
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    # A daemon thread is gone with its process: being here means that the end was not orderly.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
