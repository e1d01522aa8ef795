"""Paths of accounts, tokens and users."""

from __future__ import annotations

from django.urls import path

from encrypted_records.server.accounts import views

urlpatterns = [
    path("status/", views.StatusView.as_view()),
    path("csrf/", views.Csrf.as_view()),
    path("token/", views.ObtainToken.as_view()),
    path("token/refresh/", views.RefreshToken.as_view()),
    path("token/verify/", views.VerifyToken.as_view()),
    path("token/session/", views.SessionToken.as_view()),
    path("tokens/", views.ApiTokensView.as_view()),
    path("tokens/<str:pk>/", views.ApiTokenDetail.as_view()),
    path("accounts/login/", views.LogIn.as_view()),
    path("accounts/logout/", views.LogOut.as_view()),
    path("accounts/register/", views.Register.as_view()),
    path("accounts/verify-registration/", views.VerifyRegistration.as_view()),
    path("accounts/change-password/", views.ChangePassword.as_view()),
    path("accounts/change-email/", views.ChangeEmail.as_view()),
    path("accounts/confirm-email/", views.ConfirmEmail.as_view()),
    path("accounts/delete/", views.DeleteAccount.as_view()),
    path("accounts/send-reset-password-link/", views.SendResetPasswordLink.as_view()),
    path("accounts/reset-password/", views.ResetPassword.as_view()),
    path("accounts/second-factor/", views.SecondFactorView.as_view()),
    path("accounts/second-factor/confirm/", views.ConfirmSecondFactor.as_view()),
    path("accounts/second-factor/recovery-codes/", views.RecoveryCodes.as_view()),
    path("accounts/second-factor/remove/", views.RemoveSecondFactor.as_view()),
    path("users/self/", views.UserDetail.as_view(), {"pk": "self"}),
    path("users/<str:pk>/", views.UserDetail.as_view()),
]
