"""Every path of the API."""

from __future__ import annotations

from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.routers import SimpleRouter

from encrypted_records.server.datasets.views import Datasets, Schemas
from encrypted_records.server.docs import Docs
from encrypted_records.server.organizations.views import Organizations

router = SimpleRouter()
router.register("organizations", Organizations, basename="organization")
router.register("datasets", Datasets, basename="dataset")
router.register("schemas", Schemas, basename="schema")

urlpatterns = [
    path("api/", include("encrypted_records.server.accounts.urls")),
    path("api/", include("encrypted_records.server.organizations.urls")),
    path("api/", include("encrypted_records.server.records.urls")),
    path("api/", include(router.urls)),
    path("api/openapi.json", SpectacularJSONAPIView.as_view()),
    path("api/docs/", Docs.as_view()),
]

handler400 = "encrypted_records.server.problems.bad_request"
handler403 = "encrypted_records.server.problems.forbidden"
handler404 = "encrypted_records.server.problems.not_found"
handler500 = "encrypted_records.server.problems.server_error"
