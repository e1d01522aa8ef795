"""What an operator keeps through an upgrade: what the first tables held of accounts, organizations,
datasets and schemas is there after all migrations.

There is no release yet whose data folder could be upgraded. Until there is one, this starts where
each app began: the tables of its first migration, with rows in them. Sealed records are not among
them: until 1.0 their formats change, and a folder of another format is refused (test_serve.py,
tests/cli/test_up_refuses.py).
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests.server.api import PASSWORD, Answer, running_api
from tests.server.test_session_store import python
from tests.support.postgres import NewDatabase

DEFINITION = '{"type": "object", "properties": {"name": {"type": "string"}}}'
FILL = """
import django
django.setup()
from django.contrib.auth.hashers import make_password
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

APPS = ("accounts", "organizations", "datasets", "records")
executor = MigrationExecutor(connection)
first = [(app, "0001_initial") for app in APPS]
executor.migrate(first)
applied = executor.recorder.applied_migrations()
assert {one for one in applied if one[0] in APPS} == set(first)
apps = executor.loader.project_state(first).apps
user = apps.get_model("accounts", "User").objects.create(
    email="ada@example.org", password=make_password(%(password)r), is_active=True,
    verified=timezone.now(),
)
organization = apps.get_model("organizations", "Organization").objects.create(
    name="Acme", slug="acme"
)
apps.get_model("organizations", "Membership").objects.create(
    user=user, organization=organization, role="owner"
)
dataset = apps.get_model("datasets", "Dataset").objects.create(
    name="Medical", slug="medical", description="of before", organization=organization
)
apps.get_model("datasets", "Schema").objects.create(
    name="Patient", slug="patient", dataset=dataset, definition=%(definition)r,
    definition_digest=bytes.fromhex(%(digest)r),
)
"""


#: Jobs under way before grants told a revoked token from an unknown one, by the tables of then.
FILL_GRANTS = """
import datetime
import hashlib
import django
django.setup()
from django.contrib.auth.hashers import make_password
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from django.utils.crypto import salted_hmac

executor = MigrationExecutor(connection)
then = [("accounts", "0006_api_tokens")]
executor.migrate(then)
apps = executor.loader.project_state(then).apps
user = apps.get_model("accounts", "User").objects.create(
    email="ada@example.org", password=make_password(%(password)r), is_active=True,
    verified=timezone.now(),
)
salt = "django.contrib.auth.models.AbstractBaseUser.get_session_auth_hash"
seal = salted_hmac(salt, user.password, algorithm="sha256").hexdigest()
for number, (token, own) in enumerate([("present", seal), ("before", "0" * 64)]):
    apps.get_model("accounts", "JobGrant").objects.create(
        digest=hashlib.sha256(token.encode()).digest(), user=user, job=bytes([number]) * 16,
        seal=own, expires=timezone.now() + datetime.timedelta(days=1),
    )
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_jobs_under_way_go_on_and_those_of_an_earlier_password_stay_revoked(
    kind: str, tmp_path: Path, postgresql: NewDatabase
) -> None:
    url = postgresql() if kind == "postgresql" else None
    data = tmp_path / "data"
    (data / "api").mkdir(parents=True, mode=0o700)
    python(data, url, "-c", FILL_GRANTS % {"password": PASSWORD})

    with running_api(tmp_path, database_url=url) as api:

        def ask(token: str) -> Answer:
            headers = {"Authorization": f"Job {token}"}
            return api.call("GET", "/api/users/self/", headers=headers)

        assert ask("present").status == 200
        assert ask("before").code == "job_revoked"
        assert ask("unknown").code == "bad_token"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_the_first_tables_held_is_there_after_all_migrations(
    kind: str, tmp_path: Path, postgresql: NewDatabase
) -> None:
    url = postgresql() if kind == "postgresql" else None
    data = tmp_path / "data"
    (data / "api").mkdir(parents=True, mode=0o700)
    digest = sha256(DEFINITION.encode()).hexdigest()
    told = {"password": PASSWORD, "definition": DEFINITION, "digest": digest}
    python(data, url, "-c", FILL % told)

    with running_api(tmp_path, database_url=url) as api:
        answer = api.token_pair("ada@example.org", PASSWORD)
        assert answer.status == 200, answer.body
        bearer = {"Authorization": f"Bearer {answer.json()['access']}"}

        def ask(path: str) -> list[dict[str, str]]:
            found = api.call("GET", path, headers=bearer)
            assert found.status == 200, found.body
            results: list[dict[str, str]] = found.json()["results"]
            return results

        (organization,) = ask("/api/organizations/")
        assert (organization["name"], organization["slug"]) == ("Acme", "acme")
        (dataset,) = ask("/api/datasets/")
        assert (dataset["name"], dataset["description"]) == ("Medical", "of before")
        (schema,) = ask("/api/schemas/")
        assert (schema["name"], schema["slug"]) == ("Patient", "patient")
        assert schema["schema"] == json.loads(DEFINITION)
        # And it can be used on: what was added since has values with which these rows work.
        made = api.call(
            "POST",
            "/api/schemas/",
            {"name": "Visit", "dataset": dataset["url"], "schema": json.loads(DEFINITION)},
            headers=bearer,
        )
        assert made.status == 201, made.body
        gone = api.call("DELETE", f"{dataset['url']}?cascade=true", headers=bearer)
        assert gone.status == 204, gone.body
