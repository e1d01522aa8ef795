"""The only outgoing HTTP: a transport, the API's endpoints, and the proxy's."""

#: The default address of a proxy.
DEFAULT_PROXY = "http://127.0.0.1:8080"
#: Maximum records in a request that is stored atomically; more records need a batch job.
MAX_DIRECT = 100
#: Maximum bytes of their JSON: less than the body that a proxy accepts, which also names the schema
#: of each record.
MAX_DIRECT_BYTES = 15 << 20
