"""Wire and record formats: convert bytes to objects and back. Pure: no I/O, no clock, no state."""

from base.compiled import prefer_compiled

prefer_compiled()
