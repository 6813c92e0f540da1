"""Tests in both forms of the compiled modules: `pytestmark = pytest.mark.usefixtures("form")` runs each test twice."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from random import Random
from types import ModuleType

import pytest

from base.compiled import MODULES, VARIABLE, is_wanted, source_of

PRODUCT = ("base", "broker", "config", "controller", "protocol", "storage", "tests")


@cache
def interpreted(name: str) -> ModuleType:
    """Return the interpreted form of a module, whichever form this process imports."""
    spec = spec_from_file_location(name, source_of(name))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def both_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """Return the compiled and the interpreted form of an imported module; skip where none is compiled."""
    use_form("compiled", monkeypatch)
    return sys.modules[name], interpreted(name)


def is_compiled(module: ModuleType) -> bool:
    return not str(module.__file__).endswith(".py")


def use_form(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all modules use this form of every compiled module that has been imported."""
    compiled = [name for name in MODULES if name in sys.modules and is_compiled(sys.modules[name])]
    if form == "interpreted":
        _use_interpreted(compiled, monkeypatch)
    elif not compiled:
        reason = "this needs a C compiler and Python.h (gcc, python3-dev)" if is_wanted() else f"{VARIABLE} is no"
        message = f"the modules are not compiled: {reason}"
        pytest.fail(message) if "CI" in os.environ else pytest.skip(message)


def _use_interpreted(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what other modules have imported from these compiled modules by the same of the interpreted ones."""
    for module, attribute, value in _uses(tuple(names), len(sys.modules)):
        monkeypatch.setattr(module, attribute, value)


@cache
def _uses(names: tuple[str, ...], modules_count: int) -> list[tuple[ModuleType, str, object]]:
    """Return each module and name that refers to something compiled, and what stands for it interpreted."""
    replaced = {}
    for name in names:
        for attribute, value in vars(interpreted(name)).items():
            if getattr(value, "__module__", None) == name:
                replaced[id(getattr(sys.modules[name], attribute, value))] = value
    return [
        (module, attribute, replaced[id(value)])
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in PRODUCT and not is_compiled(module)
        for attribute, value in vars(module).items()
        if id(value) in replaced
    ]


def mutated(plain: bytes, random: Random) -> bytes:
    """Return bytes that loops over records or messages may misread."""
    changed = bytearray(plain)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(changed))
        match random.randrange(4):
            case 0:
                changed[at] = random.choice((0, 1, 2, 0x7E, 0x7F, 0x80, 0xFE, 0xFF))
            case 1:
                changed[at] ^= 1 << random.randrange(8)
            case 2:  # a varint of up to 14 bytes
                changed[at:at] = bytes([random.choice((0x80, 0xFF))]) * random.randrange(1, 14)
            case 3:
                del changed[at + 1 :]
    return bytes(changed)
