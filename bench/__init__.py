"""Milena and Apache Kafka side by side, on one machine, in one run. Method and limits: docs/bench.md.

Owns cases, the client and the report. Must not know the broker from inside, but for the cases that call its code by
itself.
"""
