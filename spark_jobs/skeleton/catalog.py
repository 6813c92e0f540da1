"""The jobs that exist: found by their modules, without importing them.

A module of `spark_jobs/` is a job if it assigns `JOB` or defines `main`. The line of its list is the first one of its
docstring.
"""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1]
_TEMPLATE = Path(__file__).with_name("template.py")
_TEMPLATE_NAME = "template"


@cache
def jobs() -> Mapping[str, str]:
    """Return the jobs by name, each with its one line."""
    found = {}
    for path in sorted(_FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.stem != "__main__" and _is_job(tree):
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def write_template(name: str, folder: Path) -> Path:
    """Write the module of a new job and return its path. Raises ValueError or FileExistsError."""
    if not name.isidentifier():
        raise ValueError(f"expected a name of letters, digits and underscores, not {name!r}")
    target = folder / f"{name}.py"
    with target.open("x", encoding="utf-8") as module:
        module.write(_TEMPLATE.read_text(encoding="utf-8").replace(_TEMPLATE_NAME, name))
    return target


def _is_job(tree: ast.Module) -> bool:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "main":
            return True
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == "JOB" for each in node.targets
        ):
            return True
    return False
