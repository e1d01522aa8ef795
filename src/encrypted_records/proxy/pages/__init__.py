"""The pages for people, at the proxy's address outside of /api/.

They call the proxy's own endpoints in this process (:mod:`.internal_client`). Otherwise they use
only the state of pages: sessions' desks and saved questions. May import: ``auth``, ``admission``,
``http``, ``keyrings``, ``process``, ``saved_questions``, ``services``.
"""

from starlette.routing import Mount

from encrypted_records.proxy.pages import (
    account,
    charts,
    datasets,
    home,
    imports,
    jobs,
    keyring,
    manual,
    organizations,
    people,
    questions,
    records,
    schemas,
    search,
    sql,
    templating,
    ticked,
    trust,
    uploads,
)

routes = [
    *home.routes,
    *account.routes,
    *keyring.routes,
    *datasets.routes,
    *schemas.routes,
    *search.routes,
    *sql.routes,
    *records.routes,
    *ticked.routes,
    *questions.routes,
    *charts.routes,
    *uploads.routes,
    *imports.routes,
    *jobs.routes,
    *organizations.routes,
    *people.routes,
    *manual.routes,
    *trust.routes,
    Mount("/static", templating.static_application()),
    home.last,
]
