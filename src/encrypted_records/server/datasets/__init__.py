"""Datasets and schemas, and the changes allowed for a schema with records."""
