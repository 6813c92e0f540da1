"""The REST interface of a worker, as Kafka Connect's."""
