"""Every path of the API."""

from pathlib import Path

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.views.static import serve
from rest_framework.permissions import IsAuthenticated
from rest_framework.routers import SimpleRouter

from encrypted_records.server import admin as operators
from encrypted_records.server.accounts import views as accounts
from encrypted_records.server.data_plane import views as records
from encrypted_records.server.datasets.views import (
    DatasetBySlug,
    Datasets,
    SchemaBySlug,
    SchemasView,
)
from encrypted_records.server.http.openapi import Docs, OpenApiDocument
from encrypted_records.server.organizations import views as organizations

_ACCOUNTS = [
    path("status/", accounts.StatusView.as_view()),
    path("csrf/", accounts.Csrf.as_view()),
    path("token/", accounts.ObtainToken.as_view()),
    path("token/refresh/", accounts.RefreshToken.as_view()),
    path("token/verify/", accounts.VerifyToken.as_view()),
    path("token/session/", accounts.SessionToken.as_view()),
    path("tokens/", accounts.ApiTokensView.as_view()),
    path("tokens/<str:pk>/", accounts.ApiTokenDetail.as_view()),
    path("accounts/login/", accounts.LogIn.as_view()),
    path("accounts/logout/", accounts.LogOut.as_view()),
    path("accounts/register/", accounts.Register.as_view()),
    path("accounts/verify-registration/", accounts.VerifyRegistration.as_view()),
    path("accounts/change-password/", accounts.ChangePassword.as_view()),
    path("accounts/change-email/", accounts.ChangeEmail.as_view()),
    path("accounts/confirm-email/", accounts.ConfirmEmail.as_view()),
    path("accounts/delete/", accounts.DeleteAccount.as_view()),
    path("accounts/send-reset-password-link/", accounts.SendResetPasswordLink.as_view()),
    path("accounts/reset-password/", accounts.ResetPassword.as_view()),
    path("accounts/second-factor/", accounts.SecondFactorView.as_view()),
    path("accounts/second-factor/confirm/", accounts.ConfirmSecondFactor.as_view()),
    path("accounts/second-factor/recovery-codes/", accounts.RecoveryCodes.as_view()),
    path("accounts/second-factor/remove/", accounts.RemoveSecondFactor.as_view()),
    path("users/self/", accounts.UserDetail.as_view(), {"pk": "self"}),
    path("users/<str:pk>/", accounts.UserDetail.as_view()),
]

_ORGANIZATION = "organizations/<str:organization_id>"
_ORGANIZATIONS = [
    path(f"{_ORGANIZATION}/members/", organizations.MembersView.as_view()),
    path(f"{_ORGANIZATION}/members/<str:user_id>/", organizations.MemberDetail.as_view()),
    path(f"{_ORGANIZATION}/invitations/", organizations.Invitations.as_view()),
    path(
        f"{_ORGANIZATION}/invitations/<str:invitation_id>/",
        organizations.InvitationDetail.as_view(),
    ),
    path(f"{_ORGANIZATION}/audit-log/", organizations.AuditLogView.as_view()),
    path(f"{_ORGANIZATION}/roster/", organizations.RosterView.as_view()),
    path(f"{_ORGANIZATION}/grants/", organizations.Grants.as_view()),
    path(f"{_ORGANIZATION}/answers/", organizations.AnswersView.as_view()),
    path(f"{_ORGANIZATION}/requests/", organizations.RequestsView.as_view()),
    path(
        f"{_ORGANIZATION}/requests/<str:dataset_id>/<str:user_id>/",
        organizations.RequestDetail.as_view(),
    ),
    path(f"{_ORGANIZATION}/services/", organizations.ServicesView.as_view()),
    path("invitations/", organizations.OwnInvitations.as_view()),
    path("invitations/<str:invitation_id>/", organizations.OwnInvitation.as_view()),
    path("invitations/<str:invitation_id>/accept/", organizations.AcceptInvitation.as_view()),
    path("invitations/<str:invitation_id>/answer/", organizations.OwnAnswer.as_view()),
]

_RECORDS = [
    path("schemas/<str:schema_id>/erasure/", records.Erasure.as_view()),
    path("schemas/<str:schema_id>/damage/", records.DamageView.as_view()),
    path("schemas/<str:schema_id>/holds/", records.HoldsView.as_view()),
    path("schemas/<str:schema_id>/checkpoints/", records.Checkpoints.as_view()),
    path("jobs/<uuid:job>/token/", records.JobTokenView.as_view()),
    path("jobs/<uuid:job>/publish/", records.Publish.as_view()),
    path("jobs/<uuid:job>/parts/", records.Parts.as_view()),
    path("jobs/<uuid:job>/", records.StagedJobView.as_view()),
    path("schemas/<str:schema_id>/names/", records.NamesView.as_view()),
    path("schemas/<str:schema_id>/digests/", records.Digests.as_view()),
    path("records/", records.RecordsView.as_view()),
    path("records/<str:pk>/", records.RecordDetail.as_view()),
]

router = SimpleRouter()
router.register("organizations", organizations.OrganizationsView, basename="organization")
router.register("datasets", Datasets, basename="dataset")
router.register("schemas", SchemasView, basename="schema")

urlpatterns = [
    path("api/", include(_ACCOUNTS)),
    path("api/", include(_ORGANIZATIONS)),
    # The middleware data_plane.endpoints answers the most frequent of these.
    path("api/", include(_RECORDS)),
    path(f"api/{_ORGANIZATION}/dataset/<str:slug>/", DatasetBySlug.as_view()),
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
