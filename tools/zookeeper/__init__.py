"""The tree of ZooKeeper or of the embedded store: servers, shells, copies, and what older tools read from it.

Owns how a tool reaches the tree. Must not know the tools that use it.
"""
