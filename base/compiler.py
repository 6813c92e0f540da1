"""Compile generated source text into functions. The only call of `exec` in the project.

Owns compilation, and the registration of the source with `linecache`, so that tracebacks, debuggers and profilers show
its lines. Must not know what the text does. The text is generated from declarations of classes and messages, never
from a peer's bytes.
"""

import linecache
from collections.abc import Mapping
from typing import Any


def compile_function(name: str, source: str, label: str, names: Mapping[str, object]) -> Any:
    """Return the function `name` that `source` defines, with `names` as its globals. Tracebacks name it `<label>`."""
    filename = f"<{label}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = dict(names)
    exec(compile(source, filename, "exec"), namespace)
    return namespace[name]
