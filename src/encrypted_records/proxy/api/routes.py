"""All routes under /api/."""

from __future__ import annotations

from encrypted_records.proxy.api import (
    datasets,
    devices,
    erasure,
    export,
    forward,
    job_details,
    jobs,
    keyring,
    keyring_locks,
    openapi,
    people,
    record_changes,
    records,
    retention,
    rollbacks,
    schema_changes,
    schema_checks,
    schema_logs,
    schemas,
    search,
    uploads,
    why,
)
from encrypted_records.proxy.api.endpoint import routes_of

ROUTES = routes_of(
    records.endpoint,
    record_changes.endpoint,
    search.endpoint,
    why.endpoint,
    export.endpoint,
    datasets.endpoint,
    schemas.endpoint,
    schema_logs.endpoint,
    schema_changes.endpoint,
    schema_checks.endpoint,
    erasure.endpoint,
    retention.endpoint,
    jobs.endpoint,
    job_details.endpoint,
    uploads.endpoint,
    keyring.endpoint,
    keyring_locks.endpoint,
    devices.endpoint,
    people.endpoint,
    rollbacks.endpoint,
    openapi.endpoint,
    forward.endpoint,
)
