"""What a commit may be, and what may follow in a log (docs/SPEC.md, sections 7.3, 7.5 and 6.4)."""
