"""The servers of both sides: connections, and the time that those who send on them have."""
