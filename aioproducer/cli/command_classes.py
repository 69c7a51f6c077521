"""Click classes of the commands: help with groups and examples, errors on one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from aioproducer.cli.logs import logged
from aioproducer.cli.output import printable
from aioproducer.cli.parameters import WrongOption
from aioproducer.cli.security_flags import SERVERS, servers_by_variable, variable, with_flag_names
from aioproducer.errors import ConfigError, ConnectionFailed, ProducerError

_OPTIONS: Final = "Options"
"""Default group of options."""
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


class Command(click.Command):
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


class Group(Command, click.Group):
    """Command with further commands."""

    command_class: type[click.Command] | None = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in groups, and the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@contextmanager
def _escaped_errors() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = printable(error.message)
        raise


class Program(Group):
    """Root command, which shows errors of the package on one line without a traceback."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the command line; escape the text of errors."""
        with _escaped_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; escape the text of errors."""
        with logged(ctx), _escaped_errors():
            return self._run(ctx)

    def _run(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise WrongOption(with_flag_names(f"{type(error).__name__}: {error}", ctx)) from error
        except ProducerError as error:
            from aioproducer.cli.reports import error_text

            text = with_flag_names(error_text(error), ctx)
            if isinstance(error, ConnectionFailed) and servers_by_variable(ctx):
                text += f"\nThe servers come from {variable(SERVERS)}."
            raise click.ClickException(text) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, or suggest a similar name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            if nearest := get_close_matches(args[0], self.list_commands(ctx), n=1):
                raise click.UsageError(f"{error.message} Did you mean {nearest[0]!r}?", ctx) from error
            raise
