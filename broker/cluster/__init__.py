"""What this broker knows of its cluster: topics, brokers, metadata, and the requests of the controller."""
