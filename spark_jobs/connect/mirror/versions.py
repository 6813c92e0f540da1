"""The version that the connectors report: that of Apache Kafka whose behaviour they have."""

from __future__ import annotations

from typing import Final

VERSION: Final = "3.9.1"
