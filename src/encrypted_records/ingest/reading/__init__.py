"""Files as people have them -> tables: how one is read is a value, a :class:`recipe.Recipe`.

Nothing is lost in silence: a cell is stored as it is written, in another spelling of the same
value, as absent by a word that the recipe lists, or its row is refused.
"""
