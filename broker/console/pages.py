"""The files of the console's page: one document, one style sheet, one icon, and its scripts joined into one.

Owns how the modules of the page become one script, so that a browser needs four requests for them. Pure. Must not know
HTTP, or what the scripts do.

The modules use a part of the language that can be joined without a parser: `import { names } from "./module.js";` and
`export` before declarations. Each becomes a function that returns what it exports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

FIRST_MODULE: Final = "app.js"
SCRIPT: Final = ".js"
_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_LEFT_OVER: Final = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def page_files() -> dict[str, bytes]:
    """Return the files of the page by their names; all scripts are in `app.js`."""
    folder = resources.files("broker.console").joinpath("static")
    files = {each.name: each.read_bytes() for each in folder.iterdir()}
    scripts = {name: files.pop(name).decode() for name in list(files) if name.endswith(SCRIPT)}
    return {**files, FIRST_MODULE: joined(scripts, FIRST_MODULE).encode()}


def joined(modules: Mapping[str, str], first: str) -> str:
    """Return one script that runs as the module `first` does with all modules that it imports.

    Raises:
        ValueError: a module is missing, imports itself through others, or uses another form of import or export.
    """
    parts: list[str] = []
    done: dict[str, bool] = {}

    def add(name: str, importer: str) -> None:
        if done.get(name):
            return
        if name in done:
            raise ValueError(f"{name} and {importer} import each other")
        if name not in modules:
            raise ValueError(f"{importer} imports {name}, which does not exist")
        done[name] = False
        for _, imported in _IMPORT.findall(modules[name]):
            add(imported, name)
        parts.append(_function(name, modules[name]))
        done[name] = True

    add(first, first)
    return "const modules = {};\n" + "".join(parts)


def _function(name: str, text: str) -> str:
    """Return the assignment of what a module exports."""
    exported = _EXPORT.findall(text)
    body = _EXPORT.sub("", _IMPORT.sub(r'const {\1} = modules["\2"];\n', text))
    if left_over := _LEFT_OVER.search(body):
        raise ValueError(f"{name}: {left_over[0][:80]!r} cannot be joined")
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(exported)} }};\n}})();\n'
