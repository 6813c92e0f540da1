"""What kafka-configs describes and changes: entities, and their configurations on brokers and in a store."""
