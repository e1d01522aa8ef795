"""Datasets and schemas, and which changes a schema with records can take."""
