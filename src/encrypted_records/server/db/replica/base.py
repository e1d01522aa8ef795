"""The backend: the primary's, with an impatient driver."""

from encrypted_records.server.db.postgres import base
from encrypted_records.server.db.replica import driver


class DatabaseWrapper(base.DatabaseWrapper):
    Database = driver
