"""The built-in converters, by the full names of their classes in Java.

Owns the names. Modules are imported only when a converter is used. Must not know how plug-ins are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping

_ROOM = "spark_jobs.connect.converters"
CONVERTERS: Mapping[str, str] = {
    "org.apache.kafka.connect.json.JsonConverter": f"{_ROOM}.json:JsonConverter",
    "org.apache.kafka.connect.storage.StringConverter": f"{_ROOM}.simple:StringConverter",
    "org.apache.kafka.connect.converters.ByteArrayConverter": f"{_ROOM}.simple:ByteArrayConverter",
    "org.apache.kafka.connect.converters.BooleanConverter": f"{_ROOM}.simple:BooleanConverter",
    "org.apache.kafka.connect.converters.ShortConverter": f"{_ROOM}.simple:ShortConverter",
    "org.apache.kafka.connect.converters.IntegerConverter": f"{_ROOM}.simple:IntegerConverter",
    "org.apache.kafka.connect.converters.LongConverter": f"{_ROOM}.simple:LongConverter",
    "org.apache.kafka.connect.converters.FloatConverter": f"{_ROOM}.simple:FloatConverter",
    "org.apache.kafka.connect.converters.DoubleConverter": f"{_ROOM}.simple:DoubleConverter",
    "io.confluent.connect.avro.AvroConverter": f"{_ROOM}.avro:AvroConverter",
}
"""Module and class of each converter of keys and values by its name in Java."""
HEADER_CONVERTERS: Mapping[str, str] = {
    "org.apache.kafka.connect.storage.SimpleHeaderConverter": f"{_ROOM}.header_values:SimpleHeaderConverter",
}
"""Those of headers alone; `header_values.ConvertedHeaders` makes any other converter one of headers."""
