"""The metrics of a broker, and their HTTP endpoint.

Owns names and formats. Must not know how a value is computed: its owner keeps it. docs/metrics.md lists the metrics.
"""
