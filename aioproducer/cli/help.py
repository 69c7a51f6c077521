"""Help of the commands: options in groups, and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

_OPTIONS: Final = "Options"
"""Group of options that have no other."""
_SHARED: Final[Mapping[str, Sequence[str]]] = {
    "Cluster": ("--bootstrap-servers", "--config", "--config-prefix", "--config-providers", "--option"),
    "TLS and login": (
        "--security-protocol",
        "--ca",
        "--cert",
        "--key",
        "--sasl-mechanism",
        "--username",
        "--password-file",
        "--sasl-oauthbearer-allowed-files",
        "--sasl-oauthbearer-allowed-urls",
    ),
    "Output and log": ("--json", "--verbose", "--log-level", "--log-format", "--version", "--help"),
}
"""Groups of options that several commands have, in the order of the help."""


class _Grouped(click.Command):
    """Command whose help has its own groups of options, the shared groups, and examples."""

    def __init__(
        self,
        *args: Any,
        groups: Mapping[str, Sequence[str]] | None = None,
        examples: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self._groups = {**(groups or {}), _OPTIONS: (), **_SHARED}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in groups."""
        group_of = {option: name for name, options in self._groups.items() for option in options}
        rows: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in self._groups}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (row := param.get_help_record(ctx)) is not None:
                flag = next(each for each in param.opts if each.startswith("--"))
                rows[group_of.get(flag, _OPTIONS)][flag] = row
        for name, order in self._groups.items():
            flags = [
                *filter(rows[name].__contains__, order),
                *(flag for flag in rows[name] if flag not in order),
            ]
            if flags:
                with formatter.section(name):
                    formatter.write_dl([rows[name][flag] for flag in flags])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for each in self.examples:
                    formatter.write(f"  {each}\n")


class Command(_Grouped):
    """Command with groups of options and examples."""


class Group(_Grouped, click.Group):
    """Command with further commands."""

    command_class: type[click.Command] | None = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in groups, and the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
