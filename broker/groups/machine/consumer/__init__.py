"""Groups of the consumer protocol (KIP-848), in which the coordinator assigns the partitions. Pure."""
