"""Dependencies that running jobs and answering for them share."""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.client.api import Api
from encrypted_records.proxy.jobs.progress import Progress
from encrypted_records.proxy.jobs.secrets import JobSecrets
from encrypted_records.proxy.jobs.store import JobStore
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.spool.spool import Spool


@dataclass(frozen=True, slots=True)
class JobDependencies:
    api: Api
    schemas: Schemas
    keyrings: Keyrings
    store: JobStore
    secrets: JobSecrets
    spool: Spool
    progress: Progress
