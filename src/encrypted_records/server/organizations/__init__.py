"""Organizations and memberships, through which a user reaches all other resources."""
