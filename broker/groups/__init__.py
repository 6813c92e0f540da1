"""Consumer groups: pure machines for membership and offsets, and the coordinator that runs them.

Must not know: request layouts and versions, which belong to the handlers. The page is docs/groups.md.
"""
