"""Builds the distribution `milena-broker`: a wheel with one top-level package, from the repository's folders.

A build backend (PEP 517, PEP 660) that needs only the standard library: an installation downloads no build
dependencies and builds without a network. The same files result in the same wheel, byte for byte.

Layout of the wheel:

    milena_broker/                      the repository's milena_broker/
    milena_broker/_modules/FOLDER/      each of the repository's FOLDERS
    milena_broker-VERSION.dist-info/    METADATA, entry_points.txt, licenses/LICENSE, WHEEL, RECORD

Owns this layout and the translation of pyproject.toml into metadata. Must not know what the folders contain.
"""

import base64
import hashlib
import io
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "milena_broker"
FOLDERS = ("base", "broker", "config", "controller", "protocol", "spark_jobs", "storage", "tools")
PRIVATE_FOLDER = f"{PACKAGE}/_modules"
# The files of an sdist beside the folders; they include all files that this backend reads.
SDIST_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")
# The keys of [project] that this backend translates to metadata.
PROJECT_KEYS = {
    "name",
    "dynamic",
    "description",
    "readme",
    "license",
    "license-files",
    "requires-python",
    "classifiers",
    "dependencies",
    "optional-dependencies",
    "scripts",
    "entry-points",
}

Settings = Mapping[str, Any] | None


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Write the wheel and return its file name (PEP 517)."""
    files = {name: path.read_bytes() for name, path in _package_files()}
    return _write_wheel(wheel_directory, files)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Write a wheel that refers to the package in this folder, and return its file name (PEP 660)."""
    source = (ROOT / PACKAGE / "__init__.py").read_text(encoding="utf-8")
    source += f"\n__path__ = [{str(ROOT / PACKAGE)!r}]\n"
    return _write_wheel(wheel_directory, {f"{PACKAGE}/__init__.py": source.encode()})


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Write the source archive and return its file name (PEP 517)."""
    project, version = _project()
    base = f"{_file_name(project)}-{version}"
    paths = [ROOT / name for name in SDIST_FILES]
    for folder in (PACKAGE, Path(__file__).parent.name, *FOLDERS):
        paths += _files_below(ROOT / folder)
    with tarfile.open(Path(sdist_directory, f"{base}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            archive.add(path, f"{base}/{path.relative_to(ROOT)}")
        metadata = _metadata(project, version).encode()
        info = tarfile.TarInfo(f"{base}/PKG-INFO")
        info.size = len(metadata)
        archive.addfile(info, io.BytesIO(metadata))
    return f"{base}.tar.gz"


def _project() -> tuple[dict[str, Any], str]:
    """Return the table [project] of pyproject.toml, and the version in the package.

    Raises:
        ValueError: the table has a key that this backend does not translate, or the package has no version.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if unknown := set(project) - PROJECT_KEYS:
        raise ValueError(
            f"[project] has {sorted(unknown)}, which {__name__} does not put into the metadata: add it there"
        )
    source = (ROOT / PACKAGE / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    if match is None:
        raise ValueError(f'{PACKAGE}/__init__.py has no line of the form __version__ = "1.2.3"')
    return project, match[1]


def _package_files() -> Iterator[tuple[str, Path]]:
    """Yield name in the wheel and path of each file of the package."""
    for path in _files_below(ROOT / PACKAGE):
        yield path.relative_to(ROOT).as_posix(), path
    for folder in FOLDERS:
        for path in _files_below(ROOT / folder):
            yield f"{PRIVATE_FOLDER}/{path.relative_to(ROOT).as_posix()}", path


def _files_below(folder: Path) -> list[Path]:
    """Return the files of a folder in a fixed order, without bytecode and hidden files."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if path.parent.name != "__pycache__" and not path.name.startswith("."))


def _write_wheel(directory: str, files: dict[str, bytes]) -> str:
    project, version = _project()
    base = f"{_file_name(project)}-{version}"
    info = f"{base}.dist-info"
    entry_points = {"console_scripts": project["scripts"], **project["entry-points"]}
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in entry_points.items()
    ]
    files = {
        **files,
        f"{info}/METADATA": _metadata(project, version).encode(),
        f"{info}/entry_points.txt": "\n".join(groups).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: milena_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files |= {f"{info}/licenses/{name}": (ROOT / name).read_bytes() for name in project["license-files"]}
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"{base}-py3-none-any.whl"
    with zipfile.ZipFile(Path(directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            # ZipInfo's own time of 1980: the archive depends on the files alone.
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content)
    return name


def _file_name(project: Mapping[str, Any]) -> str:
    """Return the distribution's name in the form of file names."""
    name: str = project["name"]
    return re.sub(r"[-_.]+", "_", name).lower()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _metadata(project: Mapping[str, Any], version: str) -> str:
    """Return the core metadata (version 2.4) of the table [project]."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in project["license-files"]),
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {requirement}" for requirement in project["dependencies"]),
    ]
    for extra, requirements in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        for requirement in requirements:
            name, _, marker = requirement.partition(";")
            condition = f'({marker.strip()}) and extra == "{extra}"' if marker else f'extra == "{extra}"'
            lines.append(f"Requires-Dist: {name}; {condition}")
    lines.append("Description-Content-Type: text/markdown")
    description = Path(ROOT, project["readme"]).read_text(encoding="utf-8")
    return "\n".join(lines) + "\n\n" + description
