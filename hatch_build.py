"""The optional half of a build: `aioproducer/_core/_c`, compiled where that is possible."""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
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
