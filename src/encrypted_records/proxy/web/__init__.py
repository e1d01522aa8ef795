"""Templates and styles of the proxy's pages."""
