"""The file with the key that signs sessions, tokens and links.

It is created on the first start, readable by its owner only, and never changes by itself:
replacing it ends every session, token and link.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def load_or_create(path: Path) -> str:
    """The key in ``path``, generated if the file does not exist.

    Two processes that start at once agree on one key, because only one of them can link its file to
    the name.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as stream:
            stream.write(secrets.token_urlsafe(64))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another process was first, and its key is the one
        finally:
            draft.unlink()
    return path.read_text().strip()
