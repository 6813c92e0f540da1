"""A coordination server for the brokers of one machine: ZooKeeper's client protocol over one durable tree."""
