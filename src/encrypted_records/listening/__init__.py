"""The servers of both sides: connections, and time limits for clients."""
