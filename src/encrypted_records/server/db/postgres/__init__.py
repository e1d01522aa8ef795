"""Django's backend for PostgreSQL, without the health check's round trip per request."""
