"""Django's backend for PostgreSQL, with one question less for every request."""
