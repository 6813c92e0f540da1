"""The segments of a log with their indexes, and the epochs that begin in them."""
