"""Usage records that outlive the process and cannot be forged: chained, signed, anchored.

Start with `entry` (what is written), `batch` (what one write comes to), `verification` (what an
auditor asks of it). `sqlite_ledger` and `postgres_ledger` are the two stores.
"""
