"""PostgreSQL's protocol in front of the engine: `ers sql --listen`."""
