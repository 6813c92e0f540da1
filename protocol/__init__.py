"""Wire and record formats: bytes to objects and back. Pure: no I/O, no clock, no state."""
