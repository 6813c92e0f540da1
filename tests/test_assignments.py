"""Only an object, and the module of its class, set its attributes: what it needs, it receives when it is built.

An assignment `other.name = ...` is judged by the name, because the type of `other` is not known here. Fields of records
may be set anywhere: their classes declare them in the body. What `__init__` declares may not, nor what is a function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from tests.test_sizes import PRODUCT, ROOT

STATES = {
    "broker/groups/machine/consumer/member.py: Member": "deadlines of a member, which the parts of its group set",
    "broker/groups/machine/member.py: Member": "a member of a group, which the parts of the group's machine change",
    "broker/groups/machine/rebalance.py: Rebalancing": "a base of the machine, whose fields its subclass restores",
    "broker/network/connection.py: Connection": "`idle_sweeps`, a count of the listener for each connection",
    "broker/replica/topic_metrics.py: TopicMetrics": "counters of the request path, where a call costs more than they",
    "config/definition.py: UnknownTopicConfigError": "`args` of exceptions and log records, of the standard library",
    "controller/machine/context.py: ControllerContext": "the cluster as the controller sees it; its subjects change it",
    "protocol/source.py: Source": "generated code, to which the parts of the compiler write",
    "storage/log/log_state.py: LogState": "what the parts of one log share",
    "storage/producers/producer_state.py: ProducerEntry": "what a snapshot restores",
    "storage/producers/producer_state.py: ProducerState": "what recovery replays into it",
}
"""Classes whose attributes other modules may set, each with the reason."""

DEFAULTS = {
    "controller/embedded/sqlite_store.py: SqliteStore": "tools open a store that nobody else uses",
    "storage/disk/directory_writer.py: DirectoryWriter": "a log without a manager has one that never delays",
    "tools/base/command_line.py: StopRequest": "most programs have nothing to do at a signal but end",
    "tools/records/consumer_performance.py: ConsumerRun": "most runs show no progress",
}
"""Classes of which an argument may be left out, and is a function without effect then, each with the reason."""


class Assignment(NamedTuple):
    """An assignment to a public attribute of another object than `self`."""

    module: str
    line: int
    target: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} sets {self.target}.{self.name}"


class Facts(NamedTuple):
    """What the modules of the product declare and assign."""

    assignments: list[Assignment]
    owners: dict[str, set[str]]
    """By attribute, the classes whose methods declare it."""
    fields: set[str]
    """The fields of records that hold no function."""
    functions: set[str]
    """The fields of records that hold a function."""
    silent: set[str]
    """Classes with an attribute, a field or an argument of the constructor that is a function without effect."""


def read(module: str, source: str, facts: Facts) -> None:
    """Add the facts of one module."""
    _visit(module, ast.parse(source), "", facts)


def _visit(module: str, node: ast.AST, owner: str, facts: Facts) -> None:
    if isinstance(node, ast.ClassDef):
        owner = f"{module}: {node.name}"
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                holds_function = "Callable" in ast.unparse(each.annotation)
                (facts.functions if holds_function else facts.fields).add(each.target.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        target = ast.unparse(node.value)
        if target == "self":
            facts.owners.setdefault(node.attr, set()).add(owner)
        elif target != "cls" and not node.attr.startswith("_"):
            facts.assignments.append(Assignment(module, node.lineno, target, node.attr))
    elif owner and any(map(_has_no_effect, _given(node))):
        facts.silent.add(owner)
    for child in ast.iter_child_nodes(node):
        is_read_only = isinstance(child, ast.expr) and not isinstance(getattr(child, "ctx", None), ast.Store)
        if not is_read_only:  # most nodes are expressions, which assign to no attribute
            _visit(module, child, owner, facts)


def _given(node: ast.AST) -> Iterable[ast.expr | None]:
    """Return the value of an attribute, or the defaults of a constructor."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return (node.value,)
    if isinstance(node, ast.FunctionDef) and node.name == "__init__":
        return (*node.args.defaults, *node.args.kw_defaults)
    return ()


def _has_no_effect(value: ast.expr | None) -> bool:
    """Return whether an expression is a function that returns None without doing anything."""
    return isinstance(value, ast.Lambda) and isinstance(value.body, ast.Constant) and value.body.value is None


def new_facts() -> Facts:
    return Facts([], {}, set(), set(), set())


@cache
def product() -> Facts:
    facts = new_facts()
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            read(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"), facts)
    return facts


def foreign(facts: Facts) -> Iterator[tuple[Assignment, set[str]]]:
    """Yield the assignments to what `__init__`, or a function of a record, of another module declares."""
    for each in facts.assignments:
        owners = facts.owners.get(each.name, set())
        is_own = any(owner.startswith(f"{each.module}: ") for owner in owners)
        if each.name not in facts.fields and not is_own and (owners or each.name in facts.functions):
            yield each, owners


def test_no_module_sets_attributes_of_objects_of_other_modules() -> None:
    found = list(foreign(product()))
    assert [str(each) for each, owners in found if not owners & STATES.keys()] == []
    used = {owner for _, owners in found for owner in owners}
    assert used >= STATES.keys(), "an exception that nothing needs any more"


def test_the_composition_root_sets_attributes_of_no_other_object() -> None:
    """It connects all parts, so it is where a circle would be closed in this way."""
    roots = [
        each
        for each in product().assignments
        if each.module.startswith("broker/") and (each.module.count("/") == 1 or each.module.endswith("/assembly.py"))
    ]
    assert roots == []


def test_no_object_is_built_with_a_function_without_effect() -> None:
    """A connection that was forgotten would be silent."""
    assert product().silent == DEFAULTS.keys()


def test_the_rules_find_what_they_forbid() -> None:
    facts = new_facts()
    read(
        "part.py",
        "class Part:\n def __init__(self, on_end=lambda: None):\n  self.on_event, self.size = on_end, 0",
        facts,
    )
    read("record.py", "class Record:\n size: int\n when: Callable[[], None]", facts)
    read("root.py", "a.on_event, b.size = act, 1\nc[d.on_event] = e.when = act\nf.on_event += g._size", facts)
    assert [str(each) for each, _ in foreign(facts)] == [
        "root.py:1 sets a.on_event",
        "root.py:2 sets e.when",
        "root.py:3 sets f.on_event",
    ]
    assert facts.silent == {"part.py: Part"}
