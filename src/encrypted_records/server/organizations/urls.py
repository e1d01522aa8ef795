"""Paths of members, invitations, the roster and the audit log."""

from __future__ import annotations

from django.urls import path

from encrypted_records.server.organizations import roster_views, views

_ONE = "organizations/<str:organization_id>"

urlpatterns = [
    path(f"{_ONE}/members/", views.MembersView.as_view()),
    path(f"{_ONE}/members/<str:user_id>/", views.MemberDetail.as_view()),
    path(f"{_ONE}/invitations/", views.Invitations.as_view()),
    path(f"{_ONE}/invitations/<str:invitation_id>/", views.InvitationDetail.as_view()),
    path(f"{_ONE}/audit-log/", views.AuditLogView.as_view()),
    path(f"{_ONE}/roster/", roster_views.RosterView.as_view()),
    path(f"{_ONE}/grants/", roster_views.Grants.as_view()),
    path(f"{_ONE}/answers/", roster_views.AnswersView.as_view()),
    path(f"{_ONE}/requests/", roster_views.RequestsView.as_view()),
    path(f"{_ONE}/requests/<str:dataset_id>/<str:user_id>/", roster_views.RequestDetail.as_view()),
    path(f"{_ONE}/services/", roster_views.ServicesView.as_view()),
    path("invitations/", views.OwnInvitations.as_view()),
    path("invitations/<str:invitation_id>/", views.OwnInvitation.as_view()),
    path("invitations/<str:invitation_id>/accept/", views.AcceptInvitation.as_view()),
    path("invitations/<str:invitation_id>/answer/", roster_views.OwnAnswer.as_view()),
]
