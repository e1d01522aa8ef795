"""The local proxy: the only place where keys and plaintext meet."""
