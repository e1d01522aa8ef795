"""Django's backend for a read-only PostgreSQL replica, with short timeouts."""
