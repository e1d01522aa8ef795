"""PostgreSQL's wire protocol for the SQL engine: `ers sql --listen`."""
