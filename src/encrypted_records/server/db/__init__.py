"""The API's database: field types, compiled queries, errors by name, and which database it is.

Nothing here knows a table. It imports nothing of the server.
"""
