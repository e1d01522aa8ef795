"""The only outgoing HTTP: a transport, the API's endpoints, and the proxy's."""
