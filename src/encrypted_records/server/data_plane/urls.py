"""Paths of jobs, checkpoints, erasure and records; of the others, :mod:`.endpoints` says."""

from __future__ import annotations

from django.urls import path

from encrypted_records.server.data_plane import views

urlpatterns = [
    path("schemas/<str:schema_id>/erasure/", views.Erasure.as_view()),
    path("schemas/<str:schema_id>/damage/", views.DamageView.as_view()),
    path("schemas/<str:schema_id>/holds/", views.HoldsView.as_view()),
    path("schemas/<str:schema_id>/checkpoints/", views.Checkpoints.as_view()),
    path("jobs/<uuid:job>/token/", views.JobTokenView.as_view()),
    path("jobs/<uuid:job>/publish/", views.Publish.as_view()),
    path("jobs/<uuid:job>/parts/", views.Parts.as_view()),
    path("jobs/<uuid:job>/", views.StagedJobView.as_view()),
    path("schemas/<str:schema_id>/names/", views.NamesView.as_view()),
    path("schemas/<str:schema_id>/digests/", views.Digests.as_view()),
    path("records/", views.RecordsView.as_view()),
    path("records/<str:pk>/", views.RecordDetail.as_view()),
]
