"""Users: registration, verification, passwords, and the ways of authentication."""
