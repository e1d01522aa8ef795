"""What a roster entry and a commit may say, judged by proxies and the API alike. Pure, keyless.

Who can verify signatures hands in what that gave. May import: ``model``, ``errors``.
"""
