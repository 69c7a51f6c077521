"""The optional half of a build: `aioproducer/_core/_c`, compiled where that is possible."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""True on a free-threaded Python. It has no limited API, and the accelerator was never tested on one."""
OLDEST = "cp311"
SOURCES = (
    *("_accelerator", "_append", "_awaiting", "_buffer", "_buffer_read", "_column", "_produce"),
    *("_receipt", "_receipt_callbacks", "_receipt_kind", "_receipt_runs", "_receipts", "_rows"),
)
HEADERS = ("_accelerator", "_receipts", "_records")
COMPILE = [
    "-O3",
    "-g0",  # debug information would contain folder names of the build machine
    "-U_FORTIFY_SOURCE",  # some CFLAGS of Python define the macro, and a second definition is a warning
    "-D_FORTIFY_SOURCE=2",
    "-fstack-protector-strong",
    "-fvisibility=hidden",  # the module exports PyInit__accelerator alone
]
LINK = ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"]
"""ELF only: the linker of macOS has no such options."""


class AcceleratorHook(BuildHookInterface[Any]):
    """Puts the extension into the wheel; where it cannot be built says so in a line, and the wheel is a pure one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it beside its source, where an editable install looks for it, too."""
        if FREE_THREADED or os.environ.get("AIOPRODUCER_PURE", "0") not in {"", "0"}:
            return
        try:
            built = compile_in_place(self.root)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - no compiler, no Python.h, …: it is optional
            self.app.display_warning(f"Built without the optional accelerator in C: {error}")
            return
        tag = self.build_config.builder.get_best_matching_tag()
        build_data["tag"] = f"{OLDEST}-abi3-{tag.split('-')[2]}"
        build_data["pure_python"] = False
        build_data["artifacts"].append(f"/aioproducer/_core/{built}")


class ReadmeHook(MetadataHookInterface):
    """Gives relative links of the README the address of the repository, because an index shows it elsewhere."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README. Without `Source` in [project.urls] its links are unchanged."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if source := metadata.get("urls", {}).get("Source"):
            text = absolute(text, source.rstrip("/"), version_of(self.root))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, source: str, version: str) -> str:
    """Return Markdown with links to the files of the tag *version*: images as files, all others as pages."""

    def with_address(found: re.Match[str]) -> str:
        return f"{found[1]}{source}/{'raw' if found[1].startswith('!') else 'blob'}/v{version}/{found[2]}"

    return re.sub(r"(!?\[[^\]]*\]\()(?!\w+:|#)([^)\s]+)", with_address, text)


def version_of(root: str) -> str:
    """Return the version of the package below *root*."""
    text = Path(root, "aioproducer/version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__: Final = "([^"]+)"', text, re.MULTILINE)
    assert found is not None
    return found[1]


def compile_in_place(root: str) -> str:
    """Compile the extension into the package below *root*, and return the name of the file."""
    unix = os.name == "posix"
    extension = Extension(
        "aioproducer._core._accelerator",
        [f"aioproducer/_core/_c/{name}.c" for name in SOURCES],
        depends=[f"aioproducer/_core/_c/{name}.h" for name in HEADERS],
        py_limited_api=True,
        extra_compile_args=COMPILE if unix else [],
        extra_link_args=LINK if sys.platform == "linux" else [],
    )
    command = build_ext(Distribution({"name": "aioproducer", "ext_modules": [extension]}))
    command.inplace = command.force = True
    with chdir(root), TemporaryDirectory() as objects:
        command.build_temp = command.build_lib = objects
        command.ensure_finalized()
        command.run()
    return Path(command.get_ext_filename(extension.name)).name
