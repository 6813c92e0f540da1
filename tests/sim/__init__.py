"""Whole brokers in one process on virtual time: a seeded scheduler runs them, with faults."""
