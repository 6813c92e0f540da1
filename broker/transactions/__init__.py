"""Transactions: a pure machine for each transactional id, the coordinator that runs it, and markers.

Must not know: request layouts and versions, which belong to the handlers. The page is docs/transactions.md.
"""
