"""The tables of sealed records, and the SQL of the bulky tables; nothing here can read a record.

May import: no other folder of records.
"""
