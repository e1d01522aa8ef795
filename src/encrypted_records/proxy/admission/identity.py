"""Services for identities and keys of callers, built from the settings."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from encrypted_records.client.api import Api
from encrypted_records.proxy.admission.admission import Admission, Door
from encrypted_records.proxy.admission.proof import Proofs
from encrypted_records.proxy.auth import Access
from encrypted_records.proxy.keyrings.enrolment import Enrolment
from encrypted_records.proxy.keyrings.enrolment_store import AccessStore
from encrypted_records.proxy.keyrings.policy import Circumstances, decide
from encrypted_records.proxy.keyrings.secrets import secrets_from
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.settings import ProxySettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IdentityServices:
    """Services that tell who callers are, and which keys they may use."""

    access: Access
    enrolment: Enrolment
    keyrings: Keyrings
    door: Door
    admission: Admission
    proofs: Proofs

    def close(self) -> None:
        self.enrolment.close()
        self.door.close()


def build_identity(settings: ProxySettings, folder: Path, api: Api) -> IdentityServices:
    """
    Raises:
        OSError: the folder cannot be used.
        Startup: its keys or their passphrase cannot.
    """
    enrolment = _build_enrolment(settings, folder)
    keyrings = Keyrings(
        folder,
        *secrets_from(os.environ, folder),
        enrolment=enrolment,
        unlocked_seconds=60.0 * settings.lock_after,
    )
    door = Door(settings.door)
    access = Access(api, None if settings.mirror is None else settings.mirror.secret)
    admission = Admission(access, keyrings, enrolment, door)
    proofs = Proofs(api, admission, keyrings)
    return IdentityServices(access, enrolment, keyrings, door, admission, proofs)


def _build_enrolment(settings: ProxySettings, folder: Path) -> Enrolment:
    """The devices of this proxy; its level goes into the log, and to each user."""
    policy = decide(
        Circumstances(
            access=settings.access,
            host=settings.host,
            allowed_hosts=settings.allowed_hosts,
            own_api=settings.own_api,
            keyrings=len(list((folder / "keyrings").glob("*.keyring"))),
        )
    )
    enrolment = Enrolment(AccessStore(folder / "access.sqlite3"), policy)
    enrolment.note(b"", "started", detail=policy.level)
    if policy.exposed:
        log.warning(
            "this proxy can be reached from other machines and works at level api: anybody"
            " whom the API declares to be a user can use that user's keys. --access device"
            " prevents that"
        )
    log.info("level %s%s", policy.level, ", for one user" if policy.lone else "")
    return enrolment
