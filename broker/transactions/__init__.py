"""Transactions: a pure machine for each id, the coordinator around it, markers, and the check of transactional batches.

Must not know request layouts and versions, which are the handlers' business. The page is docs/transactions.md.
"""
