"""Forms of commits, and their order in a log (docs/SPEC.md, sections 7.3, 7.5 and 6.4)."""
