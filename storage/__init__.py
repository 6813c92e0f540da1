"""The partition log on disk, in Kafka's file formats: segments, indexes, producer state, checkpoints, directories.

Must not know requests, connections, the event loop or the controller. `manager.log_manager` is the entry point for a
broker, `log.log` for one partition; only the room `disk` talks to the operating system.
"""
