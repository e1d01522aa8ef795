"""What tests share: a real service, a throw-away PostgreSQL."""
