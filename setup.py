"""The packages and the compiled modules of the distribution. Everything else about it is in pyproject.toml.

Layout of a wheel:

    milena_broker/                      the repository's milena_broker/
    milena_broker/_modules/FOLDER/      each of the repository's FOLDERS; a compiled module is beside its source

Variables of the environment: `MILENA_COMPILED=no` builds a wheel of Python alone, which fits every system.
`MILENA_MODULES` names what a clone compiles for itself (`tools.launch.compiling`). What is made on the way is in a
temporary folder, so that no wheel has files of an earlier build.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from base.compiled import MODULES, is_wanted, source_of  # noqa: E402 - it is in this folder

PACKAGE = "milena_broker"
FOLDERS = ("base", "broker", "config", "controller", "protocol", "spark_jobs", "storage", "tools")
PRIVATE_PACKAGE = f"{PACKAGE}._modules"

# Optimizing more takes twice as long and gains nothing that could be measured.
FLAGS = ["-O1", "-g0"]
# The modules check positions themselves, and count in the widths that their declarations name.
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # only the .pxd declares C types
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
}


def packages() -> Iterator[str]:
    """Yield the name in the wheel of each folder that has files."""
    for top in (PACKAGE, *FOLDERS):
        prefix = "" if top == PACKAGE else f"{PRIVATE_PACKAGE}."
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*") if path.is_file()}):
            if folder.name != "__pycache__":
                yield prefix + ".".join(folder.relative_to(ROOT).parts)


def extensions(build_folder: str) -> list[Extension]:
    """Return the modules to compile. A wheel may lack them: it has the sources too. An editable one uses the clone."""
    if "editable_wheel" in sys.argv:
        return []
    is_clone = "MILENA_MODULES" in os.environ
    names = os.environ["MILENA_MODULES"].split() if is_clone else MODULES if is_wanted() else ()
    modules = [
        Extension(name, [str(source_of(name).relative_to(ROOT))], extra_compile_args=FLAGS, optional=not is_clone)
        for name in names
    ]
    modules = cythonize(modules, build_dir=build_folder, compiler_directives=DIRECTIVES, quiet=True)
    if not is_clone:
        for module in modules:
            module.name = f"{PRIVATE_PACKAGE}.{module.name}"
    return modules


with tempfile.TemporaryDirectory() as folder:
    setup(
        packages=list(packages()),
        package_dir={PRIVATE_PACKAGE: ""},
        package_data={"": ["*"]},
        ext_modules=extensions(folder),
        options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}},
    )
