"""Formats of values: JSON and its schemas, and Avro. Must not know jobs."""
