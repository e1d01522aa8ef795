"""Batch jobs: workers check and seal a file, and one commit per schema publishes it.

The public class is :class:`.service.BatchJobs`. May import: ``disk``, ``keyrings``, ``schemas``,
``spool``, ``workers``, ``write``.
"""
