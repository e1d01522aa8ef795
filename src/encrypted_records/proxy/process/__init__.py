"""The process that the proxy is: what keeps its memory private, and its long work in threads.

Its public parts are :func:`.secrecy.harden` and :func:`.offload.aside`. It imports nothing of the
proxy.
"""
