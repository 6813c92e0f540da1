"""The machine of a group: membership, offsets and their records. Pure: no I/O, no clock, no event loop."""
