"""Sources of records for commands: files, standard input, tables of databases.

May import: ``cli.login`` and its imports.
"""
