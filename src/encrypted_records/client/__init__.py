"""The only outgoing HTTP: a transport, the API's endpoints, and the proxy's."""

#: The default address of a proxy.
DEFAULT_PROXY = "http://127.0.0.1:8080"
#: Maximum records in a request that is stored atomically; more records need a batch job.
MAX_DIRECT = 100
