"""What everything on the event loop stands on: clock, timer, purgatory, promises, slices, threads, periodic jobs.

Knows nothing of Kafka.
"""
