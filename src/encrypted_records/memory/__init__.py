"""Memory of a process: how much it takes, and when it gives some back. For both sides.

It imports nothing: :mod:`.turns` has large work wait until there is room for it, :mod:`.heap` has
the allocator give back what was freed.
"""
