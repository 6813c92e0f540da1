"""The names of the servers in options and in stored results, and their titles in tables.

Owns both. Must not know how a server starts.
"""

from __future__ import annotations

from collections.abc import Mapping

MILENA = "milena"
MILENA_INTERPRETED = "milena-interpreted"
KAFKA = "kafka-3.9"
"""The server that targets refer to."""
KAFKA_4 = "kafka-4.1"
KFAKE = "kfake"
MILENA_BEFORE = "milena-before"
"""An older version of Milena in another folder."""
REFERENCES = (KAFKA, MILENA_BEFORE)
"""The servers that ratios refer to: the first of them that runs."""
TITLES: Mapping[str, str] = {
    MILENA: "Milena",
    KAFKA: "Kafka 3.9",
    KAFKA_4: "Kafka 4.1",
    KFAKE: "kfake",
    MILENA_INTERPRETED: "Milena, interpreted",
    MILENA_BEFORE: "Milena, before",
}
PEERS = tuple(name for name in TITLES if name not in (MILENA, MILENA_BEFORE))
"""What Milena can be measured beside."""
OF_EVERY_CASE = (MILENA, KAFKA)
"""The servers that run every case; the others run those on a warm server."""
