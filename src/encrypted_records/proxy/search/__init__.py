"""Answer queries: plan, fetch pages, match, sort, fetch rows, open, check.

:class:`.context.QueryRunner` runs a query against the current state;
:class:`.search.SearchService`, :class:`.search.Aggregates` and :func:`.export.export` are the
kinds of queries. All pages and rows come by :class:`.upstream.Upstream`. May import: ``disk``,
``process``, ``keyrings``, ``schemas``, ``sharing``, ``spool``.
"""
