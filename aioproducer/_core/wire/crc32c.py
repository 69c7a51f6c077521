"""CRC-32C (Castagnoli), the checksum of record batches: `crc32c(data, value=0)`, *value* that of what is before."""

from __future__ import annotations

from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c  # noqa: PLC0414 - a re-export: the one place that names the package


def _extension() -> Any:
    """Return the compiled module in the package `crc32c`, or the package if it does not have it as we know it.

    The package itself imports argparse, and the metadata of all that is installed, to know its own version: that is
    a quarter of what else there is to import for a producer.
    """
    package = PathFinder.find_spec("crc32c")
    if package is not None:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            extension = spec.loader.create_module(spec)
            if extension is not None:
                spec.loader.exec_module(extension)
                return extension
    import crc32c  # noqa: PLC0415 - better not at all

    return crc32c


if not TYPE_CHECKING:
    crc32c = _extension().crc32c
