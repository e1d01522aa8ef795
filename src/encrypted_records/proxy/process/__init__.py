"""Operating system process of the proxy: private memory, and long work in threads.

Its public parts are :func:`.secrecy.harden` and :func:`.offload.aside`. It imports nothing of the
proxy.
"""
