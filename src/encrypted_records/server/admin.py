"""Django's admin for operators: accounts, the audit log, and deactivating an account.

It exists only if ``ERS_ADMIN`` names operators, each by the address of an account. It shows neither
records nor datasets, schemas, tokens or password hashes, and can change two things: whether an
account is active, and whether it has a second factor, for people who lost app and recovery codes.
Passwords are checked like all others, under the same lockout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from encrypted_records.errors import NotAuthenticated, Throttled
from encrypted_records.server.accounts import logins, passwords
from encrypted_records.server.accounts.models import User
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.models import AuditEntry, Membership, Organization

if TYPE_CHECKING:  # at run time the classes take no parameters
    _ModelAdmin = admin.ModelAdmin[Any]
    _MembershipInline = admin.TabularInline[Membership, Organization]
else:
    _ModelAdmin = admin.ModelAdmin
    _MembershipInline = admin.TabularInline


class LoginForm(AdminAuthenticationForm):
    code = forms.CharField(label="Code of your second factor, if you have one", required=False)

    def clean(self) -> dict[str, Any]:
        request = self.request
        assert request is not None
        data: dict[str, Any] = self.cleaned_data
        try:
            names = ("username", "password", "code")
            user = passwords.check_password(request, *(data.get(name, "") for name in names))
        except (NotAuthenticated, Throttled) as error:
            raise forms.ValidationError(error.message) from None
        self.confirm_login_allowed(user)
        self.user_cache = user
        # The library reads the session's backend from the user who logs in.
        user.backend = "django.contrib.auth.backends.ModelBackend"
        return data


class Site(admin.AdminSite):
    site_header = site_title = "Encrypted Records Service"
    index_title = "Operators"
    login_form = LoginForm
    site_url = None


class ReadOnly(_ModelAdmin):
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class Users(ReadOnly):
    list_display = [
        "email",
        "is_active",
        "has_second_factor",
        "verified",
        "date_joined",
        "last_login",
    ]
    search_fields = ["email"]
    ordering = ["email"]
    fields = ["email", "is_active", "verified", "date_joined", "last_login"]
    readonly_fields = ["email", "verified", "date_joined", "last_login"]

    actions = ["remove_second_factor"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return True

    @admin.action(description="Remove the second factor", permissions=["change"])
    def remove_second_factor(self, request: HttpRequest, chosen: QuerySet[User]) -> None:
        for user in chosen.filter(has_second_factor=True):
            with transaction.atomic():
                passwords.remove_second_factor(user)
                logins.end_all(user)
                audit.note_for_all(user, audit.Action.SECOND_FACTOR_REMOVED)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        with transaction.atomic():
            obj.save(update_fields=["is_active"])
            if not obj.is_active:
                logins.end_all(obj)


class MembersInline(_MembershipInline):
    model = Membership
    fields = ["user_email", "role", "created"]
    readonly_fields = ["user_email", "role", "created"]
    extra = 0
    can_delete = False

    @admin.display(description="user")
    def user_email(self, membership: Membership) -> str:
        return membership.user.email

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class OrganizationsAdmin(ReadOnly):
    list_display = ["name", "slug", "created"]
    search_fields = ["name"]
    ordering = ["-created"]
    fields = ["name", "slug", "created"]
    inlines = [MembersInline]


class AuditLogAdmin(ReadOnly):
    list_display = ["created", "action", "user_email", "subject", "source", "request_id"]
    list_filter = ["action"]
    list_select_related = ["user"]
    ordering = ["-id"]
    fields = ["created", "action", "user_email", "subject", "source", "request_id"]
    readonly_fields = ["user_email"]

    @admin.display(description="user")
    def user_email(self, entry: AuditEntry) -> str:
        return entry.user.email if entry.user else ""


site = Site(name="admin")
site.register(User, Users)
site.register(Organization, OrganizationsAdmin)
site.register(AuditEntry, AuditLogAdmin)
