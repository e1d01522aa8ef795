"""Batch jobs: workers check and seal a file, and one commit per schema publishes it.

The public class is :class:`.service.BatchJobs`. May import: ``disk``, ``process``,
``keyrings``, ``schemas``, ``search``, ``spool``, ``workers``, ``write``.
"""
