"""Decisions of leaders and followers about a partition. Pure: no I/O, no clock, no event loop."""
