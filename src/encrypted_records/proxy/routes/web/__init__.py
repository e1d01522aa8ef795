"""The pages for people, at the proxy's address outside of /api/."""

from __future__ import annotations

from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from encrypted_records.proxy.routes.web import (
    account,
    audit,
    datasets,
    home,
    jobs,
    keyring,
    look,
    organizations,
    records,
    schemas,
    search,
)

routes = [
    *home.routes,
    *account.routes,
    *datasets.routes,
    *schemas.routes,
    *search.routes,
    *records.routes,
    *keyring.routes,
    *look.routes,
    *jobs.routes,
    *audit.routes,
    *organizations.routes,
    Mount("/static", StaticFiles(packages=[("encrypted_records.proxy.web", "static")])),
    home.last,
]
