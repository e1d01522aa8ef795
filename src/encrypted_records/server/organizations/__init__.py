"""Organizations and memberships: whatever a user reaches, it reaches through one."""
