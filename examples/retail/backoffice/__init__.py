"""The back office of a small tea and coffee shop, as an OwlClaw application.

The handlers live by department: ``inventory``, ``sales`` and ``service``. They
share one database (``store``) that is filled from the JSON files in ``data/``
the first time it is opened.
"""
