"""Between the network, which is slow, and Django's threads, which are few.

The public class is :class:`.gateway.Gateway`. Imports nothing of the server, nor Django.
"""
