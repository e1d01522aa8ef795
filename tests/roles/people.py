"""The people of the walk, each with what they show to a host; and what the owner has."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.server.writer import Writer
from tests.support.older import make_older
from tests.support.service import Account, Answer, Service, call

#: In the order of the columns; whoever is refused most comes first, so that what is deleted is
#: deleted last.
ROLES = (
    "anonymous",
    "unverified",
    "loggedout",
    "stranger",
    "removed",
    "reads",
    "elsewhere",
    "member",
    "writes",
    "owner",
)
DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name"],
}
PASSWORD = "correct horse battery 8"
Headers = Mapping[str, str]


@dataclass(frozen=True)
class Person:
    """An account that was verified, and a login of it."""

    service: Service
    account: Account
    auth: str
    id: str = ""

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Ask the API."""
        return call(method, self.service.base_url + path, body, auth=self.auth, headers=headers)

    def proxy(self, method: str, path: str, body: Any = None) -> Answer:
        return call(method, self.service.proxy_url + path, body, auth=self.auth)

    def post(self, path: str, body: Any) -> Any:
        made = self.call("POST", path, body)
        assert made.status == 201, (path, made.body)
        return made.json()

    def log_in(self) -> str:
        """The Authorization value of a login of its own."""
        pair = {"email": self.account.email, "password": self.account.password}
        answer = call("POST", f"{self.service.base_url}/api/token/", pair)
        return f"Bearer {answer.json()['access']}"


def new_person(service: Service, *, keyring: bool = True) -> Person:
    """Somebody with an organization, and a keyring at the proxy."""
    account = service.new_account()
    person = Person(service, account, "")
    person = Person(service, account, person.log_in())
    person = replace(person, id=person.call("GET", "/api/users/self/").json()["id"])
    if not keyring:
        return person
    dataset = person.post("/api/datasets/", named(organization=account.organization))
    schema = person.post("/api/schemas/", named(dataset=dataset["url"], schema=DEFINITION))
    # Who belongs is the API's word here, as in organizations from before there were rosters.
    make_older(service, account)
    row = [{"schema": schema["url"], "data": {"name": "own"}}]
    assert person.proxy("POST", "/api/records/ingest/", row).status == 201
    return person


def named(**members: Any) -> dict[str, Any]:
    return {"name": f"n{secrets.token_hex(4)}"} | members


@dataclass
class Stage:
    """An owner with members, and whoever else there is; and what belongs to the owner.

    Attributes:
        auths: what each role shows, by its name.
        further: the ids of members who may be removed, one on each host, and one more.
    """

    service: Service
    owner: Person
    member: Person
    removed: Person
    stranger: Person
    further: list[str]
    auths: dict[str, str]
    dataset: Any
    schema: Any
    record: str = field(default="")

    @property
    def organization(self) -> str:
        return self.owner.account.organization

    def person(self, role: str) -> Person | None:
        people = {
            "stranger": self.stranger,
            "removed": self.removed,
            "member": self.member,
            "owner": self.owner,
        }
        return people.get(role)

    def new_dataset(self) -> Any:
        return self.owner.post("/api/datasets/", named(organization=self.organization))

    def new_schema(self) -> Any:
        members = named(dataset=self.dataset["url"], schema=DEFINITION)
        return self.owner.post("/api/schemas/", members)

    def new_record(self) -> str:
        """The id of a record that the owner's proxy has stored."""
        row = [{"schema": self.schema["url"], "data": {"name": "Ada", "age": 36}}]
        stored = self.owner.proxy("POST", "/api/records/ingest/", row)
        assert stored.status == 201, stored.body
        return str(stored.json()[0]["id"])

    def new_writer(self) -> Writer:
        """A writer of commits to a schema of its own."""
        return Writer(self.owner, self.new_schema())  # type: ignore[arg-type]

    def new_invitation(self, email: str) -> str:
        path = f"{self.organization}invitations/"
        return str(self.owner.post(path, {"email": email})["id"])

    def invite_owner(self) -> str:
        """An invitation of the owner's, to the organization of another."""
        organization = self.stranger.account.organization
        self.owner.call("DELETE", f"{organization}members/{self.owner.id}/")  # from before
        path = f"{organization}invitations/"
        return str(self.stranger.post(path, {"email": self.owner.account.email})["id"])

    def new_token(self, **members: Any) -> Any:
        body = named(password=self.owner.account.password) | members
        return self.owner.post("/api/tokens/", body)


def set_up(service: Service) -> Stage:
    owner, member, removed, stranger = (new_person(service) for _ in range(4))
    further = [new_person(service, keyring=False) for _ in range(3)]
    for one in (member, removed, *further):
        made = owner.post(f"{owner.account.organization}invitations/", {"email": one.account.email})
        one.post(f"/api/invitations/{made['id']}/accept/", {})
    gone = f"{owner.account.organization}members/{removed.id}/"
    assert owner.call("DELETE", gone).status == 204
    dataset = owner.post("/api/datasets/", named(organization=owner.account.organization))
    schema = owner.post("/api/schemas/", named(dataset=dataset["url"], schema=DEFINITION))
    names = [one.id for one in further]
    stage = Stage(service, owner, member, removed, stranger, names, {}, dataset, schema)
    stage.record = stage.new_record()
    tokens = {
        "reads": stage.new_token(),
        "elsewhere": stage.new_token(scope="write", datasets=[stage.new_dataset()["url"]]),
        "writes": stage.new_token(scope="write"),
    }
    ended = owner.log_in()
    out = f"{service.base_url}/api/accounts/logout/"
    assert call("POST", out, auth=ended).status == 200
    people = {"stranger": stranger, "removed": removed, "member": member, "owner": owner}
    stage.auths = {
        "anonymous": "",
        "unverified": register(service).auth,
        "loggedout": ended,
        **{role: one.auth for role, one in people.items()},
        **{role: f"Bearer {one['token']}" for role, one in tokens.items()},
    }
    return stage


def register(service: Service) -> Account:
    """An account whose address nobody has confirmed."""
    email = f"{secrets.token_hex(6)}@example.org"
    body = {"email": email, "password": PASSWORD, "password_confirm": PASSWORD}
    url = f"{service.base_url}/api/accounts/register/"
    assert call("POST", url, body | {"organization_name": "Nobody's"}).status == 201
    return Account(email, PASSWORD, "")
