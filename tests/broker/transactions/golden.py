"""Two partitions of `__transaction_state` that Apache Kafka wrote, with what its dump tool makes of them."""

from tests.broker.golden import golden_partitions

PARTITIONS = golden_partitions("transaction-state")
RECORDS = [record for partition in PARTITIONS for record in partition.records]
