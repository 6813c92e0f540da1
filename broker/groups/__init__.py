"""Consumer groups: pure machines for membership and offsets, and the coordinator that gives them log, time and answers.

Must not know request layouts and versions, which are the handlers' business. The page is docs/groups.md.
"""
