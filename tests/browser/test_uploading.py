"""tus-js-client brings a file over from a page in Chromium, also across a reload."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.clients.people import DEFINITION, People, assert_stored, job_of, written
from tests.support.service import Service
from tests.support.store import Store, new_store

ROOT = Path(__file__).parents[2]
CHUNK = 128 << 10


@pytest.fixture(scope="module")
def script() -> str:
    """The clients for a browser, bundled."""
    modules = ROOT / "web" / "node_modules"
    assert modules.exists(), "these tests need web/node_modules; make environment installs them"
    done = subprocess.run(
        [
            modules / ".bin" / "esbuild",
            Path(__file__).with_name("uploading.mjs"),
            "--bundle",
            "--format=iife",
            "--log-level=error",
        ],
        env={**os.environ, "NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def module_store(site: Service) -> Store:
    return new_store(site, DEFINITION)


@pytest.fixture
def store(module_store: Store) -> Store:
    return module_store.another_schema(DEFINITION)


@pytest.fixture
def page(chromium: Browser, site: Service, script: str) -> Iterator[Page]:
    """A page on the proxy's own origin, which is the only one that may upload."""
    context = chromium.new_context(base_url=site.proxy_url)
    page = context.new_page()
    page.route("**/a-page", lambda route: route.fulfill(content_type="text/html", body=""))
    _open(page, script)
    yield page
    context.close()


def _open(page: Page, script: str) -> None:
    page.goto("/a-page")
    page.add_script_tag(content=script)


def run(page: Page, function: str, store: Store, people: People, **options: Any) -> str:
    asked = [people.file.read_text(), store.account.auth, options]
    url: str = page.evaluate(f"([text, auth, options]) => {function}(text, auth, options)", asked)
    return url


@pytest.mark.parametrize(
    ("client", "options"),
    [
        ("byTusJs", {"chunkSize": CHUNK, "parallelUploads": 2}),
        ("byTusJs", {}),
    ],
    ids=["in parallel", "in one piece"],
)
def test_a_page_uploads_a_file(
    page: Page, store: Store, tmp_path: Path, client: str, options: dict[str, Any]
) -> None:
    people = written(tmp_path, store, kind="csv", count=200, size=4000)
    url = run(page, client, store, people, **options)
    assert url.startswith(store.service.proxy_url)
    assert_stored(store, job_of(url), people)


def test_an_upload_goes_on_after_its_page_was_closed(
    page: Page, store: Store, script: str, tmp_path: Path
) -> None:
    people = written(tmp_path, store, kind="csv", count=200, size=4000)
    left = run(page, "leaveAfterOneChunk", store, people, chunkSize=CHUNK)
    _open(page, script)
    url = run(page, "byTusJs", store, people, chunkSize=CHUNK)
    assert page.evaluate("window.resumed") is True
    assert url == left
    assert_stored(store, job_of(url), people)
