"""The API: a Django project that stores accounts, definitions and ciphertext, and has no key."""
