"""Name and description of a dataset or schema, as their settings change them.

A form names the version that it has shown, so that a second tab, or a second person, overwrites
nothing silently.
"""

from __future__ import annotations

from encrypted_records.errors import Conflict
from encrypted_records.proxy.pages.page import Visit


async def save_texts(visit: Visit, path: str) -> None:
    """Store the texts of the form, unless they were changed since they were shown.

    Args:
        path: the path of the dataset or schema.

    Raises:
        PreconditionFailed: the texts were changed; nothing is stored.
        ErsError: the change was refused.
    """
    sent = {name: visit.text(name) for name in ("name", "description")}
    etag = visit.text("etag")
    await visit.answer("PATCH", path, sent, headers={"if-match": etag} if etag else {})


def changed_since() -> Conflict:
    return Conflict(
        "somebody has changed this since you opened the page, so nothing was saved",
        hint="the stored values are below; save yours if you still want them",
    )
