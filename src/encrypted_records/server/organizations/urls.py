"""Paths of members, invitations, the roster and the audit log."""

from __future__ import annotations

from django.urls import path

from encrypted_records.server.organizations import roster_views, views

_ONE = "organizations/<str:organization_id>"

urlpatterns = [
    path(f"{_ONE}/members/", views.Members.as_view()),
    path(f"{_ONE}/members/<str:user_id>/", views.MemberDetail.as_view()),
    path(f"{_ONE}/invitations/", views.Invitations.as_view()),
    path(f"{_ONE}/invitations/<str:invitation_id>/", views.InvitationDetail.as_view()),
    path(f"{_ONE}/audit-log/", views.AuditLog.as_view()),
    path(f"{_ONE}/roster/", roster_views.Roster.as_view()),
    path(f"{_ONE}/grants/", roster_views.Grants.as_view()),
    path(f"{_ONE}/answers/", roster_views.Answers.as_view()),
    path(f"{_ONE}/services/", roster_views.Services.as_view()),
    path("invitations/", views.OwnInvitations.as_view()),
    path("invitations/<str:invitation_id>/", views.OwnInvitation.as_view()),
    path("invitations/<str:invitation_id>/accept/", views.AcceptInvitation.as_view()),
    path("invitations/<str:invitation_id>/answer/", roster_views.OwnAnswer.as_view()),
]
