"""Django's settings, read from environment variables only.

``ERS_DATA_DIR``          folder of everything the API keeps on disk
``ERS_DATABASE_URL``      default: SQLite at <data dir>/api/db.sqlite3
``ERS_REPLICA_URL``       a PostgreSQL replica of it, for reading rows and pages
``ERS_BULK_URL``          the store of large parts; default: files under <data dir>/api/objects/
``ERS_BULK_BEFORE``       during a move, the previous store of large parts
``ERS_KEEP_REPLACED``     minutes for which replaced data is kept
``ERS_ERASE_WITHIN``      days within which the bytes of dead rows are erased
``ERS_EMAIL_URL``         default: each message a file under <data dir>/mail/
``ERS_MAIL_LINKS``        whether links of such messages are printed: terminal, always or never
``ERS_SECRET_KEY_FILE``   default: <data dir>/api/secret.key, created on the first start
``ERS_ALLOWED_HOSTS``     names besides the local ones, separated by commas
``ERS_PUBLIC_URL``        where links in messages lead: the proxy with its web pages
``ERS_TRUSTED_ORIGINS``   origins browsers may send changes from, separated by commas
``ERS_TRUSTED_PROXIES``   networks whose X-Forwarded-... headers are trusted, separated by commas
``ERS_ADMIN``             addresses of operators, separated by commas; without any, /admin/ is off
``ERS_RATE_LIMITS``       changed limits, such as ``register=100/hour``, separated by commas
``ERS_PASSWORD_HASHING``  ``standard`` or ``light``: the cost of a password hash
``ERS_LOG_FORMAT``        ``text`` or ``json``
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ

from encrypted_records import __version__
from encrypted_records.errors import InvalidSetting
from encrypted_records.listening.binding import LOCAL_NAMES
from encrypted_records.server.db.databases import configure_databases

env = environ.Env()

DATA_DIR = Path(env.str("ERS_DATA_DIR", default=".data"))
PUBLIC_URL: str = env.str("ERS_PUBLIC_URL", default="http://127.0.0.1:8080").rstrip("/")
LOG_FORMAT: str = env.str("ERS_LOG_FORMAT", default="text")
_public = urlsplit(PUBLIC_URL)


def _load_or_create_key(path: Path) -> str:
    """The key that signs sessions, tokens and links, from the file ``path``; generated if missing.

    The file is readable by its owner only, and never changes by itself: replacing it ends every
    session, token and link. Two processes that start at once agree on a key, because only one of
    them can link its file to the name.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as stream:
            stream.write(secrets.token_urlsafe(64))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another process was first; its key is used
        finally:
            draft.unlink()
    return path.read_text().strip()


# Tools that only load the settings (type checker, makemigrations) have no data folder and must not
# create one; they can use a random key.
if "ERS_DATA_DIR" in os.environ:
    SECRET_KEY = _load_or_create_key(
        Path(env.str("ERS_SECRET_KEY_FILE", default=str(DATA_DIR / "api" / "secret.key")))
    )
else:
    SECRET_KEY = secrets.token_urlsafe(64)

DEBUG = False
ROOT_URLCONF = "encrypted_records.server.urls"
WSGI_APPLICATION = "encrypted_records.server.wsgi.application"
ALLOWED_HOSTS = [
    # The names of the address that the API listens on.
    *env.list("ERS_OWN_NAMES", default=list(LOCAL_NAMES)),
    *([_public.hostname] if _public.hostname else []),
    *env.list("ERS_ALLOWED_HOSTS", default=[]),
]
CSRF_TRUSTED_ORIGINS = [
    f"{_public.scheme}://{_public.netloc}",
    *env.list("ERS_TRUSTED_ORIGINS", default=[]),
]
APPEND_SLASH = False
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    # Always installed, so that its tables exist whenever an operator is named.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.messages",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "rest_framework",
    "rest_registration",
    "drf_spectacular",
    "encrypted_records.server.accounts",
    "encrypted_records.server.organizations",
    "encrypted_records.server.datasets",
    "encrypted_records.server.records",
]

MIDDLEWARE = [
    "encrypted_records.server.http.middleware.RequestLog",
    "encrypted_records.server.http.middleware.ClientAddress",
    "encrypted_records.server.http.middleware.RequestGate",
    "encrypted_records.server.data_plane.endpoints.DataPlane",
    "django.contrib.sessions.middleware.SessionMiddleware",
    # Sets the cookie; accounts.authentication checks the token of a session's changes.
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


DATABASES = configure_databases(
    env.str("ERS_DATABASE_URL", default=""),
    env.str("ERS_REPLICA_URL", default=""),
    DATA_DIR / "api",
)
#: Where large parts of groups and segments are stored (objects.choice).
BULK_URL: str = (
    env.str("ERS_BULK_URL", default="") or (DATA_DIR.absolute() / "api" / "objects").as_uri()
)
#: During a move, the store from which objects move to that store.
BULK_BEFORE: str = env.str("ERS_BULK_BEFORE", default="")


def _keep_replaced() -> timedelta:
    minutes: str = env.str("ERS_KEEP_REPLACED", default="") or "15"
    if not (minutes.isascii() and minutes.isdigit() and 0 < int(minutes) <= 60 * 24 * 365):
        raise InvalidSetting(
            "ERS_KEEP_REPLACED is not a number of minutes", hint="write a whole number, such as 15"
        )
    return timedelta(minutes=int(minutes))


def _erase_within() -> timedelta:
    days: str = env.str("ERS_ERASE_WITHIN", default="") or "30"
    if not (days.isascii() and days.isdigit() and 0 < int(days) <= 3650):
        raise InvalidSetting(
            "ERS_ERASE_WITHIN is not a number of days", hint="write a whole number, such as 30"
        )
    return timedelta(days=int(days))


#: How long replaced segments, ended groups and their objects stay.
KEEP_REPLACED = _keep_replaced()
#: How long an object may keep a few dead rows.
ERASE_WITHIN = _erase_within()
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        # Mostly credentials: an early eviction costs hashing a password.
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    }
}

# --- who may send what, and how often --------------------------------------------------------


def _trusted_proxies() -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    try:
        return [
            ipaddress.ip_network(address.strip())
            for address in env.list("ERS_TRUSTED_PROXIES", default=[])
        ]
    except ValueError:
        raise InvalidSetting(
            "ERS_TRUSTED_PROXIES contains something that is not an address or a network",
            hint="write addresses or networks, separated by commas: 127.0.0.1, 10.0.0.0/8",
        ) from None


TRUSTED_PROXIES = _trusted_proxies()
OPERATORS = {name.strip().lower() for name in env.list("ERS_ADMIN", default=[])} - {""}
STATIC_URL = "/admin/static/"

#: name -> (count, time); per source, except ``messages`` per address, and ``codes`` and
#: ``addresses`` per account.
RATE_LIMITS = {
    "passwords": (60, timedelta(minutes=1)),
    "register": (20, timedelta(hours=1)),
    "reset": (20, timedelta(hours=1)),
    "links": (60, timedelta(hours=1)),
    "invite": (60, timedelta(hours=1)),
    "requests": (60, timedelta(hours=1)),
    "tokens": (600, timedelta(minutes=1)),
    "messages": (10, timedelta(hours=1)),
    "codes": (20, timedelta(days=1)),
    "addresses": (5, timedelta(hours=1)),
}
_PERIODS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}


def _changed_limits() -> dict[str, tuple[int, timedelta]]:
    limits = {}
    for setting in env.list("ERS_RATE_LIMITS", default=[]):
        match = re.fullmatch(r"(\w+)=([1-9]\d{0,8})/(\w+)", setting.strip())
        if match is None or match[1] not in RATE_LIMITS or match[3] not in _PERIODS:
            raise InvalidSetting(
                "ERS_RATE_LIMITS contains something that is not a limit",
                hint=f"write register=100/hour; names are {', '.join(RATE_LIMITS)},"
                f" times {', '.join(_PERIODS)}",
            )
        limits[match[1]] = int(match[2]), _PERIODS[match[3]]
    return limits


RATE_LIMITS |= _changed_limits()

# --- mail ---------------------------------------------------------------------------------


def _email_settings() -> dict[str, Any]:
    url = env.str("ERS_EMAIL_URL", default="")
    try:
        return dict(env.email_url_config(url)) if url else {}
    except (KeyError, ValueError, environ.ImproperlyConfigured):
        raise InvalidSetting(
            "the e-mail URL is of a kind that this service does not support",
            hint="use smtp://, smtp+tls:// or smtp+ssl:// with user:password@host:port",
        ) from None


_email = _email_settings()
EMAIL_BACKEND = "encrypted_records.server.accounts.mail.FolderBackend"
vars().update(_email)


def _mail_links() -> str:
    chosen: str = env.str("ERS_MAIL_LINKS", default="terminal")
    if chosen not in ("terminal", "always", "never"):
        raise InvalidSetting(
            f"ERS_MAIL_LINKS is {chosen!r}", hint="it must be terminal, always or never"
        )
    return chosen


MAIL_LINKS = _mail_links()
#: Shorter than the time that a stopping server grants to pending messages.
EMAIL_TIMEOUT = 5
_sender = str(_email.get("EMAIL_HOST_USER") or "")
DEFAULT_FROM_EMAIL = (
    _sender if "@" in _sender else f"encrypted-records@{_public.hostname or 'localhost'}"
)

# --- accounts -----------------------------------------------------------------------------


def _password_hasher() -> str:
    name = env.str("ERS_PASSWORD_HASHING", default="standard")
    if name not in ("standard", "light"):
        raise InvalidSetting(
            f"ERS_PASSWORD_HASHING is {name!r}, which is not a known strength",
            hint="it must be standard or light",
        )
    return f"encrypted_records.server.accounts.hashing.{name.title()}"


# Addresses are unique among verified accounts, and only these can log in.
SILENCED_SYSTEM_CHECKS = ["auth.E003", "rest_registration.E010", "rest_registration.E013"]
AUTH_USER_MODEL = "accounts.User"
PASSWORD_HASHERS = [_password_hasher()]
_VALIDATORS = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": f"{_VALIDATORS}.UserAttributeSimilarityValidator",
        "OPTIONS": {"user_attributes": ("email", "first_name", "last_name")},
    },
    {"NAME": f"{_VALIDATORS}.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": f"{_VALIDATORS}.CommonPasswordValidator"},
    {"NAME": f"{_VALIDATORS}.NumericPasswordValidator"},
]
PASSWORD_RESET_TIMEOUT = int(timedelta(hours=1).total_seconds())
#: Stores sessions under the digest of the cookie, not under the cookie.
SESSION_ENGINE = "encrypted_records.server.accounts.logins"
#: For HTTPS only: sent if the request came by HTTPS.
SECURE_HSTS_SECONDS = int(timedelta(days=365).total_seconds())
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _public.scheme == "https"
CSRF_FAILURE_VIEW = "encrypted_records.server.http.problems.forbidden"

SIMPLE_JWT = {
    "ACCESS_TOKEN_LIFETIME": timedelta(minutes=15),
    "REFRESH_TOKEN_LIFETIME": timedelta(days=7),
    # The clocks of several APIs differ, and a token comes from one to another at once.
    "LEEWAY": timedelta(seconds=30),
}


def _templates(name: str) -> dict[str, str]:
    return {
        "subject": f"accounts/{name}_subject.txt",
        "text_body": f"accounts/{name}.txt",
        "html_body": f"accounts/{name}.html",
    }


REST_REGISTRATION = {
    "REGISTER_VERIFICATION_URL": f"{PUBLIC_URL}/verify-registration/",
    "REGISTER_VERIFICATION_PERIOD": timedelta(days=7),
    "REGISTER_VERIFICATION_ONE_TIME_USE": True,
    "REGISTER_EMAIL_VERIFICATION_ENABLED": False,
    "RESET_PASSWORD_VERIFICATION_URL": f"{PUBLIC_URL}/reset-password/",
    "RESET_PASSWORD_VERIFICATION_PERIOD": timedelta(hours=1),
    "RESET_PASSWORD_VERIFICATION_ONE_TIME_USE": True,
    "REGISTER_EMAIL_VERIFICATION_URL": f"{PUBLIC_URL}/confirm-email/",
    "REGISTER_EMAIL_VERIFICATION_PERIOD": timedelta(days=1),
    "VERIFICATION_FROM_EMAIL": DEFAULT_FROM_EMAIL,
    "VERIFICATION_TEMPLATE_CONTEXT_BUILDER": "encrypted_records.server.accounts.mail.link_context",
    "REGISTER_VERIFICATION_EMAIL_TEMPLATES": _templates("register"),
    "REGISTER_EMAIL_VERIFICATION_EMAIL_TEMPLATES": _templates("new_address"),
    "RESET_PASSWORD_VERIFICATION_EMAIL_TEMPLATES": _templates("reset_password"),
}

# --- HTTP ---------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "encrypted_records.server.accounts.authentication.Bearer",
        "encrypted_records.server.accounts.authentication.Basic",
        "encrypted_records.server.accounts.authentication.Session",
        "encrypted_records.server.accounts.authentication.ServiceToken",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "encrypted_records.server.accounts.authentication.WithinToken",
    ],
    "DEFAULT_PARSER_CLASSES": ["encrypted_records.server.http.bodies.JsonParser"],
    "DEFAULT_RENDERER_CLASSES": ["encrypted_records.server.http.bodies.JsonRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "encrypted_records.server.http.bodies.OneFormat",
    "DEFAULT_PAGINATION_CLASS": "encrypted_records.server.http.bodies.Paging",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "encrypted_records.server.http.problems.handle",
}
#: Bodies are limited per path by middleware.RequestGate, before anything is read.
DATA_UPLOAD_MAX_MEMORY_SIZE = None

SPECTACULAR_SETTINGS = {
    "TITLE": "Encrypted Records Service: API",
    "DESCRIPTION": "Accounts, datasets, schemas and encrypted records. It never sees plaintext.",
    "VERSION": __version__,
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/",
    # Requests have no read-only members.
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "encrypted_records.server.data_plane.endpoints.describe",
        "encrypted_records.server.http.openapi.complete",
    ],
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"ours": {"()": "encrypted_records.logs.formatter", "form": LOG_FORMAT}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "ours"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        # middleware.RequestLog already logs each request
        "django.request": {"level": "ERROR"},
        "django.security": {"level": "ERROR"},
        # Its warnings are about errors that a request has failed with already, in the server's
        # words, which may quote a parameter.
        "psycopg": {"level": "ERROR"},
    },
}
