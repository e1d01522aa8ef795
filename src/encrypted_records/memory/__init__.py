"""What a process takes of memory, and gives back, for both sides.

It imports nothing: :mod:`.turns` has large work wait until there is room for it, :mod:`.heap` has
the allocator give back what was freed.
"""
