"""Connectors and tasks of a Kafka Connect cluster, as its workers' REST interface reports them."""
