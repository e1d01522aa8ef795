"""The proxy's endpoints: each reads a request, calls one service, and answers.

Each module has an ``endpoint`` object, which declares its endpoints; this module collects their
routes. May import all packages below it, but not ``pages``.
"""

from __future__ import annotations

from encrypted_records.proxy.api import (
    changes,
    columns,
    devices,
    erasure,
    forward,
    integrity,
    jobs,
    keyring,
    openapi,
    people,
    record_changes,
    records,
    schema_changes,
    schemas,
    search,
    uploads,
)
from encrypted_records.proxy.api.endpoint import routes_of

ROUTES = routes_of(
    schemas.reading_endpoint,
    schemas.endpoint,
    records.endpoint,
    record_changes.endpoint,
    changes.endpoint,
    changes.webhook_endpoint,
    search.endpoint,
    columns.endpoint,
    integrity.endpoint,
    schema_changes.endpoint,
    erasure.endpoint,
    jobs.endpoint,
    uploads.endpoint,
    keyring.endpoint,
    devices.endpoint,
    erasure.people_endpoint,
    people.endpoint,
    integrity.people_endpoint,
    openapi.endpoint,
    forward.endpoint,
)
