"""Long classes and functions: a reader holds about this much in mind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = (
    "base",
    "protocol",
    "config",
    "storage",
    "controller",
    "broker",
    "tools",
    "spark_jobs",
    "milena_broker",
    "bench",
)
CLASS_LINES_MAX = 500
FUNCTION_LINES_MAX = 90


def lengths(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield each class and function of a module that may have a long one, with its lines, and how many it may have."""
    source = path.read_text(encoding="utf-8")
    if source.count("\n") <= min(CLASS_LINES_MAX, FUNCTION_LINES_MAX):
        return  # none in it can be long
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            limit = CLASS_LINES_MAX if isinstance(node, ast.ClassDef) else FUNCTION_LINES_MAX
            assert node.end_lineno is not None
            yield f"{path.relative_to(ROOT)}: {node.name}", node.end_lineno - node.lineno + 1, limit


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node, also those in other statements. To visit the expressions would take longer."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def test_classes_and_functions_are_short() -> None:
    modules = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    assert [name for path in modules for name, lines, limit in lengths(path) if lines > limit] == []
