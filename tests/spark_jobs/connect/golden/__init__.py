"""What Kafka's own converters and transforms do, recorded once."""
