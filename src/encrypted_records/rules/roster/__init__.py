"""The sum of a roster's entries, and which of them count (docs/SPEC.md, section 15.4)."""
