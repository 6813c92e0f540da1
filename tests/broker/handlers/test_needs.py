"""Handlers declare the parts of the broker that they use, and nothing else."""

from __future__ import annotations

import re
from inspect import get_annotations, getsource
from types import ModuleType

import pytest

from broker.requests.routes import TABLE
from broker.requests.services import Services

PARTS = get_annotations(Services)
HANDLERS = [pytest.param(module, id=module.__name__.rpartition(".")[2]) for module in TABLE.values()]


@pytest.mark.parametrize("module", HANDLERS)
def test_declared_parts_exist_with_the_declared_type(module: ModuleType) -> None:
    for base in _protocols(module):
        for name, annotation in get_annotations(base).items():
            assert PARTS[name] == annotation
        for name in set(vars(base)) - set(get_annotations(base)):
            assert name.startswith("_") or hasattr(Services, name)


@pytest.mark.parametrize("module", HANDLERS)
def test_declared_parts_are_used(module: ModuleType) -> None:
    if needs := vars(module).get("Needs"):
        source = getsource(module)
        methods = {name for name, member in vars(needs).items() if callable(member) and not name.startswith("_")}
        for name in {*get_annotations(needs), *methods}:
            assert re.search(rf"services\.{name}\b", source), name


def _protocols(module: ModuleType) -> list[type]:
    needs = vars(module).get("Needs")
    return [] if needs is None else [base for base in needs.__mro__ if base.__name__ == "Needs"]
