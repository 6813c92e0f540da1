"""Tools that produce and consume records, and the readers of what records contain.

Owns the consoles, the measurements, and the formats of Kafka's internal records. Must not know how logs are stored.
"""
