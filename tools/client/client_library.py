"""The client library, confluent-kafka, imported when a tool first uses it.

Its import takes as long as everything else that a tool does before it connects, because it imports asyncio. `--help`,
usage errors and the report of a dead address do not need it.

Owns the import. Must not know any tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import OFFSET_BEGINNING as OFFSET_BEGINNING
    from confluent_kafka import OFFSET_END as OFFSET_END
    from confluent_kafka import OFFSET_STORED as OFFSET_STORED
    from confluent_kafka import TIMESTAMP_CREATE_TIME as TIMESTAMP_CREATE_TIME
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME as TIMESTAMP_LOG_APPEND_TIME
    from confluent_kafka import AcknowledgeType as AcknowledgeType
    from confluent_kafka import Consumer as Consumer
    from confluent_kafka import IllegalStateException as IllegalStateException
    from confluent_kafka import KafkaError as KafkaError
    from confluent_kafka import KafkaException as KafkaException
    from confluent_kafka import Message as Message
    from confluent_kafka import Producer as Producer
    from confluent_kafka import ShareConsumer as ShareConsumer
    from confluent_kafka import TopicPartition as TopicPartition
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        import confluent_kafka

        # Later uses find the name in the module, and do not come here.
        globals()[name] = found = getattr(confluent_kafka, name)
        return found
