"""All routes under /api/."""

from __future__ import annotations

from encrypted_records.proxy.api import (
    changes,
    columns,
    datasets,
    devices,
    erasure,
    forward,
    job_details,
    jobs,
    keyring,
    older_keys,
    openapi,
    people,
    readings,
    record_changes,
    records,
    rollbacks,
    schema_changes,
    schema_logs,
    schemas,
    search,
    uploads,
)
from encrypted_records.proxy.api.endpoint import routes_of

ROUTES = routes_of(
    readings.endpoint,
    readings.of_schema,
    records.endpoint,
    record_changes.endpoint,
    changes.endpoint,
    search.endpoint,
    columns.endpoint,
    datasets.endpoint,
    schemas.endpoint,
    schema_logs.endpoint,
    schema_changes.endpoint,
    erasure.endpoint,
    jobs.endpoint,
    job_details.endpoint,
    uploads.endpoint,
    keyring.endpoint,
    devices.endpoint,
    older_keys.endpoint,
    people.endpoint,
    rollbacks.endpoint,
    openapi.endpoint,
    forward.endpoint,
)
