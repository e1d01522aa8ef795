"""Files that survive a power cut, and errors of the disk by name.

:mod:`.atomic_files` replaces whole files, :mod:`.nameless` holds what is gone with its process,
:mod:`.sqlite` opens the proxy's databases, :mod:`.ballast` keeps room for that. It imports nothing
of the proxy.
"""
