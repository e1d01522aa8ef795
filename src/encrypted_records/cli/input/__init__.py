"""Where commands take records from: files, standard input, tables of databases.

May import: ``cli.login`` and what it may.
"""
