"""The pages for people, at the proxy's address outside of /api/.

They call the proxy's own endpoints in this process (:mod:`.internal_client`) and act on nothing
else but what belongs to pages alone: sessions' desks and saved questions. May import: ``auth``,
``admission``, ``http``, ``keyrings``, ``process``, ``search``, ``services``.
"""

from __future__ import annotations

from starlette.routing import Mount

from encrypted_records.proxy.pages import (
    account,
    api_tokens,
    audit,
    charts,
    dataset_keys,
    dataset_people,
    datasets,
    device,
    docs,
    fields,
    help_pages,
    home,
    imports,
    jobs,
    keyring,
    organizations,
    people,
    people_matrix,
    records,
    saved,
    schemas,
    search,
    second_factor,
    sql,
    templating,
    ticked,
    trust,
    uploads,
)

routes = [
    *home.routes,
    *account.routes,
    *api_tokens.routes,
    *second_factor.routes,
    *device.routes,
    *datasets.routes,
    *dataset_keys.routes,
    *dataset_people.routes,
    *schemas.routes,
    *fields.routes,
    *search.routes,
    *sql.routes,
    *records.routes,
    *ticked.routes,
    *saved.routes,
    *keyring.routes,
    *charts.routes,
    *uploads.routes,
    *imports.routes,
    *jobs.routes,
    *audit.routes,
    *organizations.routes,
    *people.routes,
    *people_matrix.routes,
    *docs.routes,
    *help_pages.routes,
    *trust.routes,
    Mount("/static", templating.static_application()),
    home.last,
]
