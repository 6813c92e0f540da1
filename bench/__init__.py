"""Milena and Apache Kafka side by side, on one machine, in one run. Method and limits: docs/bench.md.

Owns cases, the client and the report. Must not know the broker's internals, except in the cases that call its code
directly.
"""
