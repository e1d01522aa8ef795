"""Read users' files as tables, by a :class:`recipe.Recipe`.

Nothing is lost silently: a cell is stored as written, in another spelling of the same value, or as
absent because the recipe lists its word; otherwise its row is refused.
"""
