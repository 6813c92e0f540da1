"""Turning source text that this package writes itself into functions. The only call of `exec` in the project.

Owns compiling, and that tracebacks, debuggers and profilers show the lines: the source is registered with `linecache`.
Must not know what the text does. It is made from our own declarations (`protocol.schema`), at no time from what a peer
sent.
"""

import linecache
from collections.abc import Mapping
from typing import Any


def compile_function(name: str, source: str, label: str, names: Mapping[str, object]) -> Any:
    """The function `name` that `source` defines, which sees `names` as its globals; tracebacks call it `<label>`."""
    filename = f"<{label}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = dict(names)
    exec(compile(source, filename, "exec"), namespace)
    return namespace[name]
