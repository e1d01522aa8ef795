"""The pages of an organization's people, without a script: what no browser is needed for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.sharing.people import Person
from tests.proxy.sharing.test_coming_back import delete_account
from tests.support import forked
from tests.support.authenticator import with_second_factor
from tests.support.front import Asked, Reply, running_front
from tests.support.page_visits import Browser, logged_in
from tests.support.proxies import running_proxy
from tests.support.service import ERS, Account, Answer, Service, call, clean_environment

STRING = re.compile(r'value="(ers1_[A-Za-z0-9_-]+)"')


@dataclass
class Visitor:
    browser: Browser
    account: Account

    def page(self, rest: str = "", organization: str = "", **form: str) -> Answer:
        path = (organization or self.account.organization).removeprefix("/api")
        # Names of fields have hyphens.
        sent = {name.replace("_", "-"): value for name, value in form.items()}
        return self.browser.visit(path + rest, **sent)

    def text(self, rest: str = "", organization: str = "", **form: str) -> str:
        answer = self.page(rest, organization, **form)
        assert answer.status == 200, answer.body
        return said(answer)


def said(answer: Answer) -> str:
    return unescape(re.sub(r"\s+", " ", answer.body.decode()))


@pytest.fixture(scope="module")
def service(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


@pytest.fixture
def ada(service: Service) -> Visitor:
    account = service.new_account()
    return Visitor(logged_in(service, account), account)


def new_dataset(service: Service, account: Account, name: str = "Medical") -> str:
    body = {"name": name, "organization": account.organization}
    made = call("POST", f"{service.proxy_url}/api/datasets/", body, auth=account.auth)
    assert made.status == 201, made.body
    return str(made.json()["id"])


def new_schema(service: Service, account: Account, dataset: str) -> str:
    definition = {"type": "object", "properties": {"name": {"type": "string"}}}
    body = {"name": "Visits", "dataset": f"/api/datasets/{dataset}/", "schema": definition}
    made = call("POST", f"{service.proxy_url}/api/schemas/", body, auth=account.auth)
    assert made.status == 201, made.body
    return str(made.json()["id"])


def invite(ada: Visitor, dataset: str, email: str) -> str:
    """The twelve words."""
    shown = ada.text(
        "invite/",
        email=email,
        proof_password=ada.account.password,
        **{f"right-{dataset}": "reader"},
    )
    words = re.findall(r"<li>([a-z]+)</li>", shown.partition('class="phrase')[2])
    assert len(words) == 12
    return " ".join(words)


def people(service: Service, account: Account, organization: str = "") -> Any:
    path = f"{service.proxy_url}{organization or account.organization}people/"
    answer = call("GET", path, auth=account.auth, headers=service.door)
    assert answer.status == 200, answer.body
    return answer.json()


def joined(service: Service, ada: Visitor, dataset: str) -> Visitor:
    account = service.new_account()
    words = invite(ada, dataset, account.email)
    grace = Visitor(logged_in(service, account), account)
    first = said(grace.browser.visit("/organizations/"))
    (invitation,) = re.findall(r'value="accept:([A-Za-z0-9]{22})"', first)
    asked = said(grace.browser.visit("/organizations/", do=f"accept:{invitation}"))
    assert "The twelve words" in asked
    answered = said(grace.browser.visit(f"/invitations/{invitation}/", words=words))
    assert "The words were correct" in answered
    assert f"{account.email}</bdi> was admitted." in ada.text()
    return grace


def test_a_services_string_is_shown_once_and_it_is_ended(service: Service, ada: Visitor) -> None:
    dataset = new_dataset(service, ada.account)
    form = {"name": "nightly", "days": "30", "proof_password": ada.account.password}
    refused = ada.page("new-service/", **form)
    assert (refused.status, "Nothing is shared." in said(refused)) == (400, True)
    assert 'value="nightly"' in said(refused)
    assert ada.account.password not in said(refused)
    for days in ("soon", "-1", "9" * 5000):
        wrong = ada.page("new-service/", **{**form, "days": days, f"right-{dataset}": "writer"})
        assert (wrong.status, STRING.findall(said(wrong))) == (400, []), days
    made = ada.text("new-service/", **form, **{f"right-{dataset}": "writer"})
    (string,) = STRING.findall(made)
    listed = ada.text()
    assert string not in listed
    # A column for each dataset; an owner gets from a cell to the form of that right.
    assert '<th scope="col"><bdi>Medical</bdi></th>' in listed
    cell = r'people/[^/]+/#right-(\w+)"><span class="hidden"><bdi>Medical</bdi>: </span>reads and'
    assert re.findall(cell, listed) == [dataset]
    (member,) = [
        person["id"]
        for person in people(service, ada.account)["people"]
        if person["type"] == "service"
    ]
    asked = ada.text(f"remove/{member}/")
    assert "Limit:" in asked
    assert "Medical</bdi> has a new key for new records." in ada.text(f"remove/{member}/", do="end")
    assert "nightly" not in ada.text()
    assert string not in service.log


def test_an_invitation_is_withdrawn_and_one_that_is_used_opens_nothing(
    service: Service, ada: Visitor
) -> None:
    dataset = new_dataset(service, ada.account)
    guest = service.new_account()
    words = invite(ada, dataset, guest.email)
    visitor = logged_in(service, guest)
    (invitation,) = re.findall(r"accept:([A-Za-z0-9]{22})", said(visitor.visit("/")))
    wrong = visitor.visit(f"/invitations/{invitation}/", words=words + " more")
    assert wrong.status == 400
    assert words not in said(wrong)
    assert "waiting for the words" in ada.text()
    assert guest.email in ada.text()
    assert guest.email not in ada.text(do=f"withdraw:{invitation}")
    late = visitor.visit(f"/invitations/{invitation}/", words=words)
    assert (late.status, "there is no such open invitation" in said(late).lower()) == (404, True)


def test_a_member_sees_who_is_in_and_changes_nobody(service: Service, ada: Visitor) -> None:
    dataset = new_dataset(service, ada.account)
    grace = joined(service, ada, dataset)
    organization = ada.account.organization
    seen = grace.text(organization=organization)
    assert ada.account.email in seen
    assert "Medical</bdi>: </span>reads" in seen
    for offered in ("Invite a person", "Change</a>", "Create a service", "Rename"):
        assert offered not in seen
    own = next(person["id"] for person in people(service, ada.account)["people"] if person["you"])
    for rest, form in (
        (f"people/{own}/", {"do": "member"}),
        (f"remove/{own}/", {"do": "remove"}),
        ("invite/", {"email": "eve@example.org", f"right-{dataset}": "reader"}),
    ):
        form |= {"proof-password": grace.account.password}
        refused = grace.page(rest, organization, **form)
        assert refused.status == 403, (rest, refused.body)
        assert "Only owners" in said(refused)
    assert [person["role"] for person in people(service, ada.account)["people"]] == [
        "owner",
        "member",
    ]
    # They may leave, and are asked first.
    mine = next(
        person["id"] for person in people(service, ada.account)["people"] if not person["you"]
    )
    assert "Limit:" in grace.text(f"remove/{mine}/", organization)
    assert grace.page(f"remove/{mine}/", organization, do="leave").status == 200
    # Which dataset the colleague was in needs a new key, and the owner's next look gives it.
    assert "Medical</bdi> has a new key for new records." in ada.text()


def test_the_page_of_a_dataset_s_people_says_who_does_what_in_it_and_since_when(
    service: Service, ada: Visitor
) -> None:
    dataset = new_dataset(service, ada.account)
    other = new_dataset(service, ada.account, "Other")
    page = f"/datasets/{dataset}/people/"
    assert f'href="{ada.browser.at}{page}"' in said(ada.browser.visit(f"/datasets/{dataset}/"))
    grace = joined(service, ada, dataset)
    shown = said(ada.browser.visit(page))
    (row,) = [one for one in shown.split("<tr>") if grace.account.email in one]
    told = people(service, ada.account)["people"][1]["shares"][0]
    day = f"{datetime.fromtimestamp(told['since'], UTC):%Y-%m-%d}"
    for part in ("reads", "all schemas", day, ada.account.email, "Change"):
        assert part in row
    assert grace.account.email not in said(ada.browser.visit(f"/datasets/{other}/people/"))
    for_grace = said(grace.browser.visit(page))
    assert (ada.account.email in for_grace, "Invite a person" in for_grace) == (True, False)


def test_a_member_whose_account_is_gone_is_shown_as_a_deleted_account(
    service: Service, ada: Visitor, tmp_path: Path
) -> None:
    dataset = new_dataset(service, ada.account)
    kay, grace = joined(service, ada, dataset), joined(service, ada, dataset)
    mark = "deleted account"
    assert mark not in ada.text()
    delete_account(Person(service, grace.account, tmp_path))
    for visitor in (ada, kay):
        shown = visitor.text(organization=ada.account.organization)
        (row,) = [one for one in shown.split("<tr>") if mark in one]
        assert "according to the server" in row
        assert grace.account.email not in row


def test_a_visitor_deletes_the_account_and_leaves_the_signed_list(
    service: Service, ada: Visitor
) -> None:
    grace = joined(service, ada, new_dataset(service, ada.account))
    path = "/account/delete/"
    blocked = said(ada.browser.visit(path))
    assert "you are the only owner of" in blocked
    assert "Delete my account permanently" not in blocked

    told = said(grace.browser.visit(path))
    for part in ("What goes", "What stays", "your address stays readable", grace.account.email):
        assert part in told
    refused = grace.browser.visit(path, password="something else")
    assert refused.status == 400
    names = {person["name"] for person in people(service, ada.account)["people"]}
    assert grace.account.email in names, "a wrong password leaves nothing"
    app = with_second_factor(service, grace.account)
    given = {"password": grace.account.password}
    assert grace.browser.visit(path, **given).status == 400
    assert grace.browser.visit(path, code=app.stale(), **given).status == 400
    names = {person["name"] for person in people(service, ada.account)["people"]}
    assert grace.account.email in names, "a wrong code leaves nothing"

    done = said(grace.browser.visit(path, code=app.code(), **given))
    assert "Your account is deleted" in done
    listed = people(service, ada.account)["people"]
    assert {person["name"] for person in listed} == {ada.account.email}
    assert "Log in" in said(grace.browser.visit("/account/"))


def test_an_api_that_names_another_member_has_only_the_visitor_leave(
    service: Service, tmp_path: Path
) -> None:
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        here = replace(service, proxy_url=proxy.url)
        account = service.new_account()
        ada = Visitor(logged_in(here, account), account)
        grace = joined(here, ada, new_dataset(here, account))
        listed = people(here, account)["people"]
        ids = {person["name"]: person["id"].encode() for person in listed}
        proof = {"proof_password": account.password}
        ada.text(f"people/{ids[grace.account.email].decode()}/", do="owner", **proof)

        def swap(asked: Asked, reply: Reply) -> Reply:
            if asked.path != "/api/users/self/":
                return reply
            return reply.with_body(reply.body.replace(ids[account.email], ids[grace.account.email]))

        with front.telling(swap):
            done = said(ada.browser.visit("/account/delete/", password=account.password))
        assert "Your account is deleted" in done
        left = people(here, grace.account, account.organization)["people"]
        assert {person["name"] for person in left} == {grace.account.email}


def test_the_words_of_a_lost_owner_bring_the_organization_back(
    service: Service, ada: Visitor
) -> None:
    grace = joined(service, ada, new_dataset(service, ada.account))
    organization = ada.account.organization
    shown = said(
        ada.browser.visit("/keyring/", **{"do": "show", "proof-password": ada.account.password})
    )
    words = re.findall(r"<li>([a-z]+)</li>", shown.partition('class="phrase')[2])
    phrase = " ".join(words[:24])
    form = {"phrase": phrase, "proof-password": grace.account.password}
    refused = grace.page("recover/", organization, **form)
    assert refused.status == 403, refused.body
    assert phrase not in said(refused)
    slug = call("GET", service.proxy_url + organization, auth=ada.account.auth).json()["slug"]
    made = forked.run(
        [
            *(*ERS, "api", "owner", grace.account.email, "--organization", slug),
            *("--data-dir", str(service.data_dir)),
        ],
        clean_environment(),
    )
    assert made.returncode == 0, made.stderr
    wrong = grace.page("recover/", organization, **form | {"phrase": " ".join(words[1:24])})
    assert wrong.status == 400
    done = grace.text("recover/", organization, **form)
    assert f"from the keys of {ada.account.email}" in done
    roles = {person["name"]: person["role"] for person in people(service, ada.account)["people"]}
    assert roles == {ada.account.email: "owner", grace.account.email: "owner"}


def test_a_browser_that_was_not_let_in_is_told_so_and_makes_nothing(
    service: Service, tmp_path: Path
) -> None:
    with running_proxy(service.base_url, tmp_path, access="device") as proxy:
        here = replace(service, proxy_url=proxy.url)
        account = service.new_account()
        dataset = new_dataset(service, account)
        ada = Visitor(logged_in(here, account), account)
        invite(ada, dataset, "grace@example.org")
        other = Visitor(logged_in(here, account), account)
        assert "Register this browser" in other.text()
        form = {"email": "eve@example.org", "proof-password": account.password}
        refused = other.page("invite/", **form, **{f"right-{dataset}": "reader"})
        assert (refused.status, 'class="phrase' in said(refused)) == (200, False)
        assert "<h1>Register this browser" in said(refused)
        listed = ada.text()
        assert ("grace@example.org" in listed, "eve@example.org" in listed) == (True, False)


def test_a_browser_that_was_not_let_in_sees_its_datasets_without_numbers(
    service: Service, tmp_path: Path
) -> None:
    with running_proxy(service.base_url, tmp_path, access="device") as proxy:
        here = replace(service, proxy_url=proxy.url)
        account = service.new_account()
        dataset = new_dataset(service, account)
        schema = new_schema(service, account, dataset)
        own = logged_in(here, account)
        assert own.visit(f"/schemas/{schema}/add/", **{"value-0": "Ada"}).status == 200
        other = logged_in(here, account)
        for page in ("/datasets/", f"/datasets/{dataset}/"):
            assert re.search("Visits.*1 record", said(own.visit(page)))
            seen = other.visit(page)
            assert (seen.status, "1 record" in said(seen)) == (200, False)
            assert f"/schemas/{schema}/" in said(seen)


def test_an_api_that_swaps_names_has_nobody_share_another_dataset(
    service: Service, tmp_path: Path
) -> None:
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        here = replace(service, proxy_url=proxy.url)
        account = service.new_account()
        medical, payroll = (new_dataset(service, account, one) for one in ("Medical", "Payroll"))
        ada = Visitor(logged_in(here, account), account)
        assert ada.text("invite/").count("This name is not signed yet") == 2
        for dataset in (medical, payroll):
            invite(ada, dataset, f"{dataset.lower()}@example.org")

        def swap(asked: Asked, reply: Reply) -> Reply:
            if not asked.path.startswith("/api/datasets/"):
                return reply
            swapped = reply.body.replace(b"Medical", b"Other").replace(b"Payroll", b"Medical")
            return reply.with_body(swapped.replace(b"Other", b"Payroll"))

        def labels() -> dict[str, str]:
            shown = ada.text("invite/")
            return dict(re.findall(r'<label for="right-(\w+)"><bdi>(\w+)</bdi>', shown))

        with front.telling(swap):
            assert labels() == {medical: "Medical", payroll: "Payroll"}
            assert "This name is not signed yet" not in ada.text("invite/")


def test_rights_are_changed_in_a_table_but_not_over_those_of_somebody_else(
    service: Service, ada: Visitor
) -> None:
    datasets = [new_dataset(service, ada.account, name) for name in ("Medical", "<b>Orders</b>")]
    medical, orders = datasets
    grace = joined(service, ada, medical)
    for dataset in datasets:
        assert f"was-{dataset}" not in ada.text()
    # The second dataset is signed when it is shared.
    (member,) = [one for one in people(service, ada.account)["people"] if not one["you"]]
    proof = {"proof_password": ada.account.password}
    path = f"people/{member['id']}/"
    ada.text(path, do="share", **proof, **{f"right-{name}": "reader" for name in datasets})

    def rights() -> dict[str, str]:
        (one,) = [one for one in people(service, ada.account)["people"] if not one["you"]]
        return {share["dataset"].split("/")[-2]: share["role"] for share in one["shares"]}

    shown = ada.page("rights/").body.decode()
    assert "Change rights in a table" in ada.text()
    assert "&lt;b&gt;Orders&lt;/b&gt;" in shown
    assert "<b>Orders" not in shown
    cells = {
        f"{kind}-{member['id']}-{one}": "reader" for one in datasets for kind in ("was", "right")
    }
    changed = cells | {f"right-{member['id']}-{medical}": "writer"}
    assert ada.page("rights/", **changed).status == 403  # without the password
    assert rights() == {medical: "reader", orders: "reader"}
    assert ada.page("rights/", **changed, **proof).status == 200
    assert rights() == {medical: "writer", orders: "reader"}

    # A tab that is older: the cell that it changes was changed since; then one that was not.
    again = ada.page("rights/", **cells | {f"right-{member['id']}-{medical}": ""}, **proof)
    assert again.status == 409
    assert "somebody has changed these rights" in said(again).lower()
    assert rights() == {medical: "writer", orders: "reader"}
    taken = ada.page("rights/", **cells | {f"right-{member['id']}-{orders}": ""}, **proof)
    assert taken.status == 200, service.log[-3000:]
    assert rights() == {medical: "writer"}
    # Members change nothing.
    refused = grace.page("rights/", ada.account.organization, **cells, **proof)
    assert rights() == {medical: "writer"}
    assert refused.status in (200, 403)


def test_a_right_that_was_narrowed_to_schemas_since_is_not_passed_over(
    service: Service, ada: Visitor
) -> None:
    medical = new_dataset(service, ada.account)
    schema = new_schema(service, ada.account, medical)
    joined(service, ada, medical)
    (member,) = [one for one in people(service, ada.account)["people"] if not one["you"]]
    proof = {"proof_password": ada.account.password}
    narrowed = {f"right-{medical}": "reader", f"only-{medical}-{schema}": "yes"}
    ada.text(f"people/{member['id']}/", do="share", **proof, **narrowed)

    # By a tab that has shown the right to all schemas.
    cell = f"{member['id']}-{medical}"
    for typed, status in (("", 409), ("writer", 409), ("reader", 200)):
        form = {f"was-{cell}": "reader", f"right-{cell}": typed}
        assert ada.page("rights/", **form, **proof).status == status, typed
    (member,) = [one for one in people(service, ada.account)["people"] if not one["you"]]
    (share,) = member["shares"]
    assert share["role"] == "reader"
    assert [schema["name"] for schema in share["schemas"]] == ["Visits"]


@dataclass
class Listed:
    """Ada lists the dataset Payroll, and Grace is in another one."""

    service: Service
    ada: Visitor
    grace: Visitor
    dataset: str

    @classmethod
    def of(cls, service: Service, ada: Visitor) -> Listed:
        grace = joined(service, ada, new_dataset(service, ada.account))
        listed = cls(service, ada, grace, new_dataset(service, ada.account, "Payroll"))
        # The first share begins its keys, and so does the listing.
        page = said(ada.browser.visit(listed.people_of_dataset, do="list"))
        assert "This dataset is listed: members can ask for access." in page
        return listed

    @property
    def people_of_dataset(self) -> str:
        return f"/datasets/{self.dataset}/people/"

    def as_grace(self, **form: str) -> str:
        return self.grace.text(organization=self.ada.account.organization, **form)

    @property
    def member(self) -> str:
        listed = people(self.service, self.ada.account)["people"]
        return str(next(one["id"] for one in listed if one["name"] == self.grace.account.email))


def test_a_member_asks_on_the_page_and_an_owner_shares_what_is_asked_for(
    service: Service, ada: Visitor
) -> None:
    listed = Listed.of(service, ada)
    page = listed.as_grace()
    assert "Datasets that you can ask for" in page and "The owner decides" in page
    asked = listed.as_grace(do=f"ask:{listed.dataset}", role="writer")
    assert "asked to read and write" in asked
    shown = ada.text()
    assert "Requests for access" in shown
    # The overview counts them, once there are records.
    link = f"people/{listed.member}/?request={listed.dataset}"
    assert link in shown
    form = ada.text(link)
    assert "asks to read and write <bdi>Payroll</bdi>" in form
    chosen = form.partition(f'id="right-{listed.dataset}"')[2].partition("</select>")[0]
    assert '<option value="writer" selected>' in chosen
    medical = people(service, ada.account)["datasets"][0]["dataset"].split("/")[-2]
    rights = {f"right-{listed.dataset}": "writer", f"right-{medical}": "reader"}
    ada.text(link, do="share", proof_password=ada.account.password, **rights)
    assert "Requests for access" not in ada.text()
    assert "Datasets that you can ask for" not in listed.as_grace()
    shares = {
        share["name"]: share["role"]
        for one in people(service, ada.account)["people"]
        for share in one["shares"]
    }
    assert shares == {"Medical": "reader", "Payroll": "writer"}


def test_a_request_is_withdrawn_or_declined_on_the_page(service: Service, ada: Visitor) -> None:
    listed = Listed.of(service, ada)
    listed.as_grace(do=f"ask:{listed.dataset}", role="reader")
    assert "Ask for access" in listed.as_grace(do=f"withdraw-request:{listed.dataset}")
    assert "Requests for access" not in ada.text()
    listed.as_grace(do=f"ask:{listed.dataset}", role="reader")
    shown = ada.text(do=f"decline:{listed.dataset}:{listed.member}")
    assert "Requests for access" not in shown
    own = listed.as_grace()
    assert "according to the server" in own
    assert f'value="ask:{listed.dataset}"' in own  # for when a week is over
    again = listed.grace.page(
        organization=ada.account.organization, do=f"ask:{listed.dataset}", role="reader"
    )
    assert (again.status, "declined this request" in said(again)) == (409, True)


def test_a_listing_is_ended_and_only_owners_see_how(service: Service, ada: Visitor) -> None:
    listed = Listed.of(service, ada)
    listed.as_grace(do=f"ask:{listed.dataset}", role="reader")
    page = said(ada.browser.visit(listed.people_of_dataset, do="unlist"))
    assert "This dataset is not listed" in page
    assert "Requests for access" not in ada.text()
    assert "Datasets that you can ask for" not in listed.as_grace()
    medical = people(service, ada.account)["datasets"][0]["dataset"].split("/")[-2]
    own = said(listed.grace.browser.visit(f"/datasets/{medical}/people/"))
    assert "List it" not in own
    refused = listed.grace.browser.visit(f"/datasets/{medical}/people/", do="list")
    assert refused.status == 403


def test_the_overview_of_an_owner_counts_the_requests(service: Service, ada: Visitor) -> None:
    listed = Listed.of(service, ada)
    schema = new_schema(service, ada.account, listed.dataset)
    row = [{"schema": f"/api/schemas/{schema}/", "data": {"name": "Ada"}}]
    url = f"{service.proxy_url}/api/records/ingest/"
    assert call("POST", url, row, auth=ada.account.auth, headers=service.door).status == 201
    assert "for access to your datasets" not in said(ada.browser.visit("/"))
    listed.as_grace(do=f"ask:{listed.dataset}", role="reader")
    assert "1 request for access to your datasets." in said(ada.browser.visit("/"))
