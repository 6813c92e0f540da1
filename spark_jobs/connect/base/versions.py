"""The version of Apache Kafka whose behaviour this package has: its worker and Kafka's own connectors report it."""

from __future__ import annotations

from typing import Final

KAFKA_VERSION: Final = "3.9.1"
