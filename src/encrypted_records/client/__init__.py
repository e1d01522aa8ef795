"""The only outgoing HTTP: a transport, the API's endpoints, and the proxy's."""

#: Where a proxy listens unless it is told otherwise.
DEFAULT_PROXY = "http://127.0.0.1:8080"
#: Records of one request that is stored whole or not at all; more are a batch job's.
MAX_DIRECT = 100
