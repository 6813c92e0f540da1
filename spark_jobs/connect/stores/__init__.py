"""Where configurations, offsets and states are kept: in topics of the broker, in a file or in memory.

Formats are Kafka Connect's. Must not know who changes what, or why.
"""
