"""No module of the controller reads the system clock, those that act included; `pyproject.toml` has the other walls."""

import ast
from pathlib import Path

CONTROLLER = Path(__file__).parents[2] / "controller"


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_no_module_reads_the_system_clock() -> None:
    """Time comes in through `Clock`."""
    for path in CONTROLLER.rglob("*.py"):
        assert not {"time", "datetime"} & _imported(path), path
