"""Files and URLs that a configuration from outside the program may name for OAUTHBEARER (CVE-2025-27817)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aioproducer._core.security.security_settings import file_of, file_url
from aioproducer.config.security_options import ALLOWED_FILES, ALLOWED_URLS, ENDPOINT, SOURCES
from aioproducer.errors import ConfigError


def variable(option: str) -> str:
    """Return the environment variable of *option*, a list of allowed files or URLs."""
    return f"AIOPRODUCER_{option.upper()}"


def from_environment(option: str) -> tuple[str, ...] | None:
    """Return the list in the environment variable of *option*; None if the variable is not set."""
    text = os.environ.get(variable(option))
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def vetted(
    named: Mapping[str, Any],
    files: Sequence[str] | None,
    urls: Sequence[str] | None,
    written: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield each option of *named* that names a file, with the path from the list of allowed files. None allows all.

    Paths are compared after symbolic links and `..` are resolved. The producer later reads the path in the list,
    because a symbolic link of an untrusted writer may change after this check.

    Raises: ConfigError, which names an option as it was *written*.
    """
    for option in SOURCES & named.keys():
        value = named[option]
        path = value if value is None or option != ENDPOINT else file_of(value)
        if path is None:
            if value is not None and urls is not None and value not in urls:
                raise _refused(written.get(option, option), value, ALLOWED_URLS)
        elif files is not None:
            for each in files:
                if _resolved(each) == _resolved(path):
                    listed = os.path.abspath(each)  # noqa: PTH100 - resolve() would follow symbolic links
                    if listed != path:
                        yield option, file_url(listed) if option == ENDPOINT else listed
                    break
            else:
                raise _refused(written.get(option, option), value, ALLOWED_FILES)


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL, which no file name has
        return path


def _refused(option: str, value: object, allowing: str) -> ConfigError:
    return ConfigError(
        f"{option} = {value!r}: refused, because {allowing} does not list it and its content would be sent over the"
        f" network; if you trust it, list it in the keyword argument {allowing}, the flag"
        f" --{allowing.replace('_', '-')} or the environment variable {variable(allowing)}"
    )
