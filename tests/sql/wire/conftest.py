"""A listener over a dataset with two schemas, which the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from encrypted_records import Client
from tests.support.listener import Running, running_listener
from tests.support.service import Account, Service

PATIENT: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "description": "People who were treated",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 10**9},
        "name": {"type": "string"},
        "born": {"type": "string", "format": "date"},
        "weight": {"type": "number", "minimum": 0, "maximum": 1000, "precision": 2},
        "seen": {"type": "string", "format": "date-time"},
        "insured": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        "key": {"type": "string", "format": "uuid"},
        "stay": {"type": "string", "format": "duration"},
    },
    "required": ["id"],
}
VISIT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "patient": {"type": "integer", "minimum": 0, "maximum": 10**9},
        "cost": {"type": "number", "minimum": 0, "maximum": 10**6, "precision": 2},
    },
    "required": ["patient"],
}
PATIENTS: list[dict[str, Any]] = [
    {
        "id": 1,
        "name": "Zoë",
        "born": "1980-02-29",
        "weight": 61.25,
        "seen": "2026-01-31T08:30:00+02:00",
        "insured": True,
        "key": "0190163d-8694-739b-aea5-966c26f8ad91",
        "stay": "P1DT2H",
    },
    {"id": 2, "name": "O'Neil", "born": "1999-12-31", "weight": 80.5, "insured": False},
    {"id": 3},
]
VISITS: list[dict[str, Any]] = [
    {"patient": 1, "cost": 10.10},
    {"patient": 1, "cost": 20.20},
    {"patient": 2, "cost": 5},
]


@pytest.fixture(scope="session")
def owner(running: Service) -> Account:
    return running.new_account()


@pytest.fixture(scope="session")
def clinic(running: Service, owner: Account) -> Iterator[str]:
    """The slug of a dataset with records."""
    with Client(running.proxy_url, email=owner.email, password=owner.password) as client:
        dataset = client.create_dataset("Clinic", slug="clinic")
        dataset.create_schema(
            "Patient", PATIENT, slug="patient", description="People who were treated"
        ).ingest(PATIENTS)
        dataset.create_schema("Visit", VISIT, slug="visit").ingest(VISITS)
        client.create_dataset("Other", slug="other")
        yield "clinic"


@pytest.fixture(scope="session")
def listener(running: Service, owner: Account, clinic: str) -> Iterator[Running]:
    with running_listener(
        running.proxy_url, user=owner.email, password=owner.password, database=clinic
    ) as listening:
        yield listening
