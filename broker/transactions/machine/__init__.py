"""The machine of a transactional id, and its records. Pure: no I/O, no clock, no event loop."""
