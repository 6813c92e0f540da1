"""The metadata store of a cluster: ZooKeeper."""
