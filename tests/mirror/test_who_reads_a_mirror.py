"""Over a mirror the device says who asks, and a browser that was logged out stays so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from encrypted_records.model import credentials
from encrypted_records.proxy.http.sessions import cookie_name
from tests.mirror.copies import Place
from tests.mirror.test_reading_a_mirror import people
from tests.support.page_visits import Browser, logged_in
from tests.support.service import Answer, Service, call, cookies_of
from tests.support.store import Store


@pytest.fixture
def copied(store: Store, place: Place) -> Place:
    store.ingest(people(3))
    place.copy(store)
    return place


def registered(store: Store) -> Browser:
    """A browser of the store's account that is logged in, and whose device is registered."""
    browser = logged_in(store.service, store.account)
    code = store.service.code_for(store.account)
    assert browser.visit("/device/", shown=code).status == 200
    return browser


def over(service: Service, browser: Browser, *, session: str | None = None) -> Browser:
    """The same browser at the proxy of a mirror, perhaps with another session in its cookie."""
    port = int(service.proxy_url.rpartition(":")[2])
    device, before, csrf = browser.cookie.partition("=")[2].split(".")
    kept = ".".join((device, before if session is None else session, csrf))
    return Browser(service, browser.at, f"{cookie_name(port)}={kept}")


@pytest.mark.parametrize("kind", ["limited", "expired", "revoked"])
def test_a_token_is_refused_also_beside_a_registered_device(
    kind: str, copied: Place, store: Store
) -> None:
    wanted: dict[str, object] = {"name": kind, "password": store.account.password}
    if kind == "limited":
        wanted["datasets"] = [store.api("GET", store.schema).json()["dataset"]]
    made = store.api("POST", "/api/tokens/", wanted)
    assert made.status == 201, made.body
    if kind == "revoked":
        assert store.api("DELETE", f"/api/tokens/{made.json()['id']}/").status == 204
    # One that has expired is a string like any other: the mirror would not know.

    with copied.read(store) as mirrored:
        assert mirrored.ask().status == 200, "the device is registered"
        refused = asked_with(mirrored, f"Bearer {made.json()['token']}")
    assert (refused.status, refused.json()["code"]) == (401, "bad_token")
    assert "mirror" in refused.json()["detail"]


def asked_with(store: Store, auth: str) -> Answer:
    headers = {credentials.DEVICE_HEADER: store.device.text}
    url = f"{store.service.proxy_url}/api/records/search/"
    return call("POST", url, {"schema": store.schema}, auth=auth, headers=headers)


def test_a_browser_that_logs_out_over_a_mirror_stays_logged_out(
    copied: Place, store: Store
) -> None:
    known = registered(store)

    with copied.read(store) as mirrored:
        browser = over(mirrored.service, known)
        assert browser.visit("/datasets/").status == 200
        url = f"{mirrored.service.proxy_url}{browser.at}/logout/"
        headers = {"Cookie": browser.cookie, "Origin": mirrored.service.proxy_url}
        # A browser follows the redirect by itself, and shows nothing of it.
        form = {"Content-Type": "application/x-www-form-urlencoded", "HX-Request": "true"}
        left = call("POST", url, b"csrf=", headers=headers | form)
        assert left.status == 204, left.body
        ((name, value),) = cookies_of(left).items()
        after = replace(browser, cookie=f"{name}={value}")
        page = after.visit("/datasets/")
        inside = call("GET", f"{url.removesuffix('/logout/')}/api/datasets/", headers=headers)
        refused = call(
            "GET",
            f"{mirrored.service.proxy_url}{browser.at}/api/datasets/",
            headers={"Cookie": after.cookie},
        )
    assert value.endswith(".."), "the device stays, the session is gone"
    assert page.status == 401
    assert "This browser is logged out" in page.body.decode(), page.body
    assert inside.status == 200, "the same path answers while there is a session"
    assert (refused.status, refused.json()["code"]) == (401, "not_authenticated")


def test_a_browser_that_was_logged_out_before_is_not_let_in_by_its_device(
    copied: Place, store: Store
) -> None:
    known = registered(store)

    with copied.read(store) as mirrored:
        assert over(mirrored.service, known).visit("/datasets/").status == 200
        page = over(mirrored.service, known, session="").visit("/datasets/")
    assert page.status == 401
    assert page.headers["X-Error-Code"] == "not_authenticated"


def test_browsers_without_a_session_share_nothing_and_show_nothing(
    copied: Place, store: Store
) -> None:
    first, second = registered(store), registered(store)

    with copied.read(store) as mirrored:
        search = f"/schemas/{store.schema_id}/search/"
        for one in (first, second):
            assert over(mirrored.service, one, session="").visit(search).status == 401
        anonymous = call("GET", f"{mirrored.service.proxy_url}/login/")
    assert anonymous.status == 200
    assert store.schema_id not in anonymous.body.decode()


def test_a_visitor_whom_the_proxy_does_not_know_is_told_so_on_a_page(
    copied: Place, store: Store
) -> None:
    registered(store)  # as another one
    stranger = logged_in(store.service, store.account)

    with copied.read(store) as mirrored:
        nobody = call("GET", f"{mirrored.service.proxy_url}/datasets/")
        page = over(mirrored.service, stranger).visit("/datasets/")
        assert (page.status, page.headers["X-Error-Code"]) == (401, "device_unknown")
        for shown in (page, over(mirrored.service, stranger).visit("/device/")):
            assert "Register this browser" in shown.body.decode()
    assert (nobody.status, nobody.headers["X-Error-Code"]) == (401, "device_needed")


def test_a_browser_whose_device_was_revoked_is_told_so_on_a_page(
    copied: Place, store: Store
) -> None:
    known = registered(store)
    mine = known.cookie.partition("=")[2].split(".")[0].split("_")[1]
    assert store.proxy("DELETE", f"/api/devices/{mine}/").status == 204

    with copied.read(store) as mirrored:
        page = over(mirrored.service, known).visit("/datasets/")
    assert (page.status, page.headers["X-Error-Code"]) == (401, "device_unknown")
