"""Two partitions of `__consumer_offsets` that Apache Kafka wrote, with what its dump tool makes of them."""

from tests.broker.golden import golden_partitions

PARTITIONS = golden_partitions("consumer-offsets")
RECORDS = [record for partition in PARTITIONS for record in partition.records]
