"""Django's backend for a PostgreSQL that only answers readers, and that is waited for briefly."""
