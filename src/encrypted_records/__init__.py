"""An encrypted record store: rows stay searchable while the server holds ciphertext only."""

__version__ = "0.1.0"
