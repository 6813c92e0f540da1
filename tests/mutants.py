"""Changes the product in one place at a time, and names the test that notices: `python -m tests.mutants`.

Each change is one operator, constant, condition or call of the product, chosen by a seed. It is made in a copy of the
tracked files, and the tests run from the nearest to the farthest until one fails: those of the module, of its folder,
those that import it, those of the folders above, and at last all but the slow ones. `--near` leaves the last two out.
The table goes to standard output, a line of progress for each change to standard error.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("base", "broker", "config", "controller", "protocol", "spark_jobs", "storage", "tools")
TIMEOUT_S = 900
"""For the tests of one folder. A change after which they end in no other way is noticed as well."""
NO_TEST_IS_LEFT = 5
"""The status of pytest when all tests are deselected."""
NOT_ABOUT_BEHAVIOUR = (
    "tests/test_sizes.py",
    "tests/test_import_budget.py",
    "tests/broker/requests/test_request_steps.py",
)
"""They count lines, imports and steps."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True)
class Mutant:
    """One change: the number of a place among those of a module."""

    module: str
    """Its path from the root of the project."""
    place: int


class Mutator(ast.NodeTransformer):
    """Counts the places of a module, and changes the one with the number `place`."""

    def __init__(self, place: int = -1) -> None:
        self.count = 0
        self.line = 0
        self.what = ""
        """What was changed, as text."""
        self._place = place

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.If) and _is_for_types(node):
            return node
        if isinstance(node, ast.AnnAssign | ast.arg | ast.FunctionDef | ast.AsyncFunctionDef):
            _forget_annotations(node)
        node = self.generic_visit(node)
        for changed, what in _changes(node):
            if self.count == self._place:
                self.line, self.what = getattr(node, "lineno", 0), what
                node = ast.copy_location(changed, node)
            self.count += 1
        return node


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield what a node may become, with a text that says so."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            changed: ast.AST = ast.Compare(node.left, [COMPARISONS[type(operator)]()], node.comparators)
        case ast.BinOp(op=operator) if type(operator) in OPERATORS and not _is_text(node):
            changed = ast.BinOp(node.left, OPERATORS[type(operator)](), node.right)
        case ast.BoolOp(op=ast.And()):
            changed = ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp(op=ast.Or()):
            changed = ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            changed = node.operand
        case ast.Constant(value=bool() as value):
            changed = ast.Constant(not value)
        case ast.Constant(value=int() as value):
            changed = ast.Constant(value + 1)
        case ast.Expr(value=ast.Call() | ast.Await()):
            changed = ast.Pass()
        case ast.If():
            changed = ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
            yield changed, f"`if {_shown(node.test)}` is negated"
            return
        case _:
            return
    yield changed, f"`{_shown(node)}` becomes `{_shown(changed)}`"


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(ast.fix_missing_locations(node)).split()).replace("|", "\\|")
    return text if len(text) <= 60 else text[:57] + "..."


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.Constant | ast.JoinedStr) and not _is_number(each) for each in (node.left, node.right)
    )


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _is_for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _forget_annotations(node: ast.AST) -> None:
    """Types change nothing: leave them out of the places."""
    if isinstance(node, ast.arg):
        node.annotation = None
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        node.returns = None


def modules() -> list[str]:
    """Return the tracked modules of the product, in order."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(path for path in listed.splitlines() if path.startswith(tuple(f"{name}/" for name in PACKAGES)))


def choose(count: int, seed: int) -> list[Mutant]:
    """Return changes by a seed: every place of the product is equally likely."""
    places = []
    for module in modules():
        counter = Mutator()
        counter.visit(ast.parse((ROOT / module).read_text()))
        places += [Mutant(module, place) for place in range(counter.count)]
    return sorted(random.Random(seed).sample(places, count), key=lambda each: (each.module, each.place))


def selections(module: str, folder: Path) -> list[list[str]]:
    """Return what to run for a module, from the nearest tests to all of them."""
    path = Path(module)
    near = [Path("tests", path.parent, f"test_{path.stem}.py"), Path("tests", path.parent)]
    far = [Path("tests", each) for each in path.parent.parents]
    existing = [[each.as_posix()] for each in near if (folder / each).exists()]
    if using := users(path, folder):
        existing.append(using)
    return existing + [[each.as_posix()] for each in far if (folder / each).exists()]


def users(module: Path, folder: Path) -> list[str]:
    """Return the files of tests in other folders that import a module."""
    name = ".".join(module.with_suffix("").parts)
    package, _, last = name.rpartition(".")
    imported = re.compile(rf"^(from {name} import|import {name}\b|from {package} import .*\b{last}\b)", re.MULTILINE)
    near = folder / "tests" / module.parent
    tests = (path for path in (folder / "tests").rglob("test_*.py") if path.parent != near)
    return sorted(path.relative_to(folder).as_posix() for path in tests if imported.search(path.read_text()))


def killer(selected: Sequence[Sequence[str]], folder: Path) -> str:
    """Return the first of the selected tests that fails in a changed copy, or "" if none does.

    Raises RuntimeError if the tests end in another way than a change of the product explains.
    """
    for selection in selected:
        marks = "not soak" if selection[0].endswith(".py") else "not soak and not slow"
        deselected = (f"--deselect={path}" for path in NOT_ABOUT_BEHAVIOUR)
        done = run_tests(folder, "-n", "2", "-m", marks, *selection, *deselected)
        if done is None:
            return f"{selection[0]} does not end"
        if done.returncode not in (0, NO_TEST_IS_LEFT):
            # `(???)` follows the name of a test that took its process with it, by its own timeout.
            if failed := re.search(r"^(?:FAILED|ERROR) (.+?)(?: \(\?\?\?\))?(?: - |$)", done.stdout, re.MULTILINE):
                return failed[1]
            if "while loading conftest" in done.stderr + done.stdout:
                return f"{selection[0]} does not start"
            raise RuntimeError(
                f"{selection[0]} ends with status {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            )
    return ""


def run_tests(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run pytest in a copy until the first failure; return None if it does not end in time."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", *arguments]
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None


def copied(folder: Path) -> None:
    """Copy the tracked files to a folder that has the environment and the downloads of this one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for path in filter(None, listed.split("\0")):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target, follow_symlinks=False)
    for name in (".venv", ".cache"):
        if (ROOT / name).exists():
            (folder / name).symlink_to((ROOT / name).resolve())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which changes (default: 1)")
    parser.add_argument("--count", type=int, default=60, help="how many (default: 60)")
    parser.add_argument("--places", nargs="+", metavar="FILE:LINE", help="only the changes of these places")
    parser.add_argument(
        "--near", action="store_true", help="run the tests of the module's folder and those that import it"
    )
    options = parser.parse_args(arguments)
    mutants = choose(options.count, options.seed)
    survivors = 0
    print("| place | change | noticed by |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        copied(folder)
        for number, mutant in enumerate(mutants, start=1):
            source = (ROOT / mutant.module).read_text()
            mutator = Mutator(mutant.place)
            tree = mutator.visit(ast.parse(source))
            place = f"{mutant.module}:{mutator.line}"
            if options.places and place not in options.places:
                continue
            (folder / mutant.module).write_text(ast.unparse(ast.fix_missing_locations(tree)))
            selected = selections(mutant.module, folder)
            if options.near:
                folders = {Path("tests", each).as_posix() for each in Path(mutant.module).parent.parents}
                selected = [each for each in selected if each[0] not in folders]
            by = killer(selected, folder)
            (folder / mutant.module).write_text(source)
            if by and " does not " not in by and ((done := run_tests(folder, by)) is None or done.returncode):
                raise RuntimeError(f"{by} fails without a change, too")
            survivors += not by
            print(f"| {place} | {mutator.what} | {by or 'nothing'} |", flush=True)
            print(f"{number} of {len(mutants)}, {survivors} not noticed", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
