"""The API: a Django project that keeps accounts, definitions and ciphertext, and holds no key."""
