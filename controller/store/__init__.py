"""The port to the metadata store: a tree of small nodes with the semantics of ZooKeeper, its watches and sessions."""
