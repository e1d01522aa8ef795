"""Shared types: frozen values and pure functions that every package may use. No I/O, no keys."""
