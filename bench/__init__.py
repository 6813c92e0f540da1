"""Milena and Apache Kafka side by side, on one machine, in one run. Method and limits: docs/bench.md."""
