"""Share groups (KIP-932): records of one partition are delivered to many members, each record to one at a time.

The group itself, with its members and what they are assigned, is in `broker.groups`.
"""
