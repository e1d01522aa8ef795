"""Django's backend for PostgreSQL, with one round trip less for every request."""
