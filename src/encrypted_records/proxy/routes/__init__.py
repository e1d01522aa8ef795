"""The proxy's endpoints: each reads a request, calls one part, and answers."""
