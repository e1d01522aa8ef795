"""Start the two sides as processes, watch them, and end them together.

Only :mod:`.supervisor` imports the proxy, and only :mod:`.api` and :mod:`.operating` the API. May
import: ``cli.settings``, ``cli.state_file``, ``cli.data_folder``, ``cli.terminal``.
"""
