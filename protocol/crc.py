"""CRC-32C, of the extension module in the package `crc32c`.

Owns how the module is loaded. The package itself also imports its command line and the metadata of distributions, which
would cost every start of a broker a twentieth of its time and 2 MB of memory. So the extension is loaded without it.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:

    def _load():
        """Return the extension module. Raises ModuleNotFoundError."""
        package = PathFinder.find_spec("crc32c")
        if package is None or package.submodule_search_locations is None:
            raise ModuleNotFoundError("No module named 'crc32c'", name="crc32c")
        extension = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
        if extension is None or extension.loader is None:
            raise ModuleNotFoundError("No module named 'crc32c._crc32c'", name="crc32c._crc32c")
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
        return module

    crc32c = _load().crc32c
