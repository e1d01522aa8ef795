"""Every path of the API."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.views.static import serve
from rest_framework.permissions import IsAuthenticated
from rest_framework.routers import SimpleRouter

from encrypted_records.server import admin as operators
from encrypted_records.server.datasets.views import (
    DatasetBySlug,
    Datasets,
    SchemaBySlug,
    SchemasView,
)
from encrypted_records.server.http.openapi import Docs, OpenApiDocument
from encrypted_records.server.organizations.views import OrganizationsView

router = SimpleRouter()
router.register("organizations", OrganizationsView, basename="organization")
router.register("datasets", Datasets, basename="dataset")
router.register("schemas", SchemasView, basename="schema")

urlpatterns = [
    path("api/", include("encrypted_records.server.accounts.urls")),
    path("api/", include("encrypted_records.server.organizations.urls")),
    path("api/", include("encrypted_records.server.data_plane.urls")),
    path("api/organizations/<str:organization_id>/dataset/<str:slug>/", DatasetBySlug.as_view()),
    path("api/datasets/<str:dataset_id>/schema/<str:slug>/", SchemaBySlug.as_view()),
    path("api/", include(router.urls)),
    path("api/openapi.json", OpenApiDocument.as_view()),
    path("api/docs/", Docs.as_view(permission_classes=[IsAuthenticated])),
]

if settings.OPERATORS:
    _static = Path(admin.__file__).parent / "static"
    urlpatterns += [
        path("admin/static/<path:path>", serve, {"document_root": _static}),
        path("admin/", operators.site.urls),
    ]

handler400 = "encrypted_records.server.http.problems.bad_request"
handler403 = "encrypted_records.server.http.problems.forbidden"
handler404 = "encrypted_records.server.http.problems.not_found"
handler500 = "encrypted_records.server.http.problems.server_error"
