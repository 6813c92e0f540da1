"""Programs that watch a cluster: lag of consumer groups, probes, metrics and differences between replicas.

Owns what is measured, and how it is served or printed. Must not change a cluster, except for the monitor's own topic.
"""
