"""Kafka Connect's runtime in Python: workers that run connectors, alone or as a group, and their REST interface.

A connector is a pair of Python classes (`api`): one splits the work into tasks, the other copies records. Rooms, from
the top: `cli` (the commands), `mirror` (MirrorMaker 2), `rest`, `herders` (which connectors run, and where), `worker`
(runs connectors and tasks), `group` (the group of workers), `stores` (the topics and files of configurations, offsets
and states), `connectors` (the built-in ones), `transforms`, `converters`, and `base`: the values and interfaces that
all of them share.

Formats and names are those of Apache Kafka 3.9, so that its workers and these can replace each other. No worker needs
Spark: connectors that move much data start Spark jobs as processes of their own.
"""
