"""SQL over sealed records."""
