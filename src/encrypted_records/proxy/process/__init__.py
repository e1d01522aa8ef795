"""The process that the proxy is: what keeps its memory private, and its long work in threads.

Its public parts are :func:`.hardening.harden`, :func:`.heap.bound_heap`,
:func:`.offload.aside` and :class:`.memory_turns.MemoryTurns`. It imports nothing of the proxy.
"""
