"""What everything on the event loop is built on: clock, timer, purgatory, promises, slices, threads, periodic jobs.

Knows nothing of Kafka.
"""
