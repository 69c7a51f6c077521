"""Options shared by several commands, and checks of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from aioproducer._core.logfmt import escaped
from aioproducer.cli.logs import logging_options
from aioproducer.cli.security_flags import (
    SERVERS,
    kafka_name,
    record_servers,
    refuse_secret,
    refuse_twice,
    security_options,
    variable,
    with_security,
)

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

C = TypeVar("C", bound=Callable[..., Any] | click.Command)
"""Function or command that click's decorators accept and return."""
MOST_DIGITS = 5
"""Largest number of digits of a partition count."""
MOST_RUN_BYTES = 4_096
"""Largest size of a run's id, which is in every record and in checkpoints."""
_PREFIX = f"{__name__}.prefix"
_PROVIDERS = f"{__name__}.providers"
_TOPIC = f"{__name__}.topic"
SERIALIZERS = ("key.serializer", "value.serializer")


class WrongOption(click.ClickException):
    """Wrong command line; exits with the code of click's usage errors."""

    exit_code = 2


def new_topics(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Return topics with their numbers of partitions from values such as `orders:6`."""
    topics: dict[str, int] = {}
    for value in values:
        name, colon, partitions = value.partition(":")
        if colon and not (partitions.isascii() and partitions.isdigit() and len(partitions) <= MOST_DIGITS):
            raise click.BadParameter(f"{value!r} should be like orders:6", ctx, param)
        if check_topic_name(ctx, param, name) in topics:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
        topics[name] = int(partitions or 1)
        if not topics[name]:
            raise click.BadParameter(
                f"{value!r} has no partitions: give 1 or more, such as orders:6", ctx, param
            )
    return topics


def take_settings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return options and values from texts such as `linger.ms=0`."""
    settings = {}
    for each in values:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.BadParameter(f"{each!r} should be like linger.ms=0", ctx, param)
        dotted = name.strip().replace("_", ".")
        if dotted == SERVERS:
            raise click.BadParameter(
                "bootstrap.servers cannot be set with --option: give --bootstrap-servers", ctx, param
            )
        if dotted in SERIALIZERS:
            raise click.BadParameter("commands send bytes, which need no serializer", ctx, param)
        refuse_secret(ctx, param, dotted, value)
        settings[dotted] = value.strip()
    return settings


class ClusterOptions(NamedTuple):
    """Options of a command that configure its producer."""

    servers: str | None
    file: Path | None
    settings: dict[str, str]
    """Options by Kafka's names, of `--option` and of options with a flag of their own."""

    def with_setting(self, name: str, value: str | None, *, by: str) -> ClusterOptions:
        """Return these options with the value of the flag *by*. Raises: WrongOption: `settings` has *name*."""
        if value is None:
            return self
        if name in self.settings:
            raise WrongOption(f"{by} already sets {name}")
        return self._replace(settings={**self.settings, name: value})


def configured(cluster: ClusterOptions, defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options of *defaults*, the file, the settings, the environment's secrets and the servers; later options win.

    Serializers in the file are left out, because commands send bytes.

    Raises: ConfigError; click.UsageError: no servers are named.
    """
    servers, file, settings = cluster
    in_file = {} if file is None else read_file(file)
    if prefixes := config_prefixes():
        from aioproducer.config.mapping import without_prefix

        in_file = without_prefix(in_file, prefixes)
    refuse_twice(settings)
    given = with_security({name.replace("_", "."): value for name, value in in_file.items()} | settings)
    known = set(map(kafka_name, given))
    given |= {name: value for name, value in (defaults or {}).items() if name not in known}
    for name in SERIALIZERS:
        given.pop(name, None)
    if servers is not None:
        given[SERVERS] = servers
    elif SERVERS not in known:
        _check_names(given, file)
        raise click.UsageError(
            f"Missing option '-b' / '--bootstrap-servers', {variable(SERVERS)} in the environment, or {SERVERS} in --config."
        )
    return given


def read_file(file: Path) -> dict[str, str]:
    """Return the options in *file*. Raises: ConfigError with the file's name; WrongOption: unreadable file."""
    from aioproducer.config.properties import read_properties
    from aioproducer.errors import ConfigError

    try:
        return read_properties(file)
    except ConfigError as error:
        raise ConfigError(f"{escaped(str(file))}: {error}") from error
    except OSError as error:
        raise WrongOption(f"{escaped(str(file))}: {error.strerror}") from error


def configuration(cluster: ClusterOptions, defaults: Mapping[str, str] | None = None) -> ProducerConfig:
    """Return a producer's configuration, as `configured`.

    Raises: ConfigError; click.UsageError: no servers are named.
    """
    from aioproducer.config import ProducerConfig

    given = configured(cluster, defaults)
    with _naming(cluster.file):
        return ProducerConfig.from_mapping(given, config_providers=config_providers())


def _check_names(given: Mapping[str, str], file: Path | None) -> None:
    """Raise ConfigError for unknown names, such as a misspelt or prefixed `bootstrap.servers`."""
    from aioproducer.config.mapping import read_mapping
    from aioproducer.config.options import KINDS
    from aioproducer.config.rules import raise_all

    with _naming(file):
        raise_all(read_mapping(given, KINDS, config_providers=config_providers()).mistakes)


@contextmanager
def _naming(file: Path | None) -> Iterator[None]:
    """Add the name of the file to a ConfigError."""
    from aioproducer.errors import ConfigError

    try:
        yield
    except ConfigError as error:
        if file is None:
            raise
        shown = escaped(str(file))
        raise ConfigError(f"{error} (with {shown}; `aioproducer config {shown}` checks it)") from error


def refuse_transactional(config: ProducerConfig) -> None:
    """Refuse a transactional id in a command without transactions."""
    if config.transactional_id is not None:
        raise WrongOption("this command sends without transactions: leave out transactional.id")


def complete_setting(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of an option of the producer."""
    from aioproducer.config.options import DEFAULTS
    from aioproducer.config.security_options import ALLOWED_FILES, ALLOWED_URLS

    names = (f"{name.replace('_', '.')}=" for name in DEFAULTS if name not in {ALLOWED_FILES, ALLOWED_URLS})
    return [name for name in names if name.startswith(incomplete)]


def complete_compression(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a codec."""
    from aioproducer._core.records.compression import Codec

    return [str(codec) for codec in Codec if str(codec).startswith(incomplete)]


def check_topic_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse an illegal topic name, which brokers would report as an unknown topic."""
    from aioproducer._core.intake.checks import check_topic

    try:
        return check_topic(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def check_run(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check a run's id, which is a header of every record."""
    if value is None:
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise click.BadParameter(f"{value!r} is not UTF-8", ctx, param) from error
    if not 0 < size <= MOST_RUN_BYTES:
        raise click.BadParameter(f"a run's id has 1 to {MOST_RUN_BYTES:,} bytes, not {size:,}", ctx, param)
    return value


def check_rate(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse infinity and NaN, which click accepts."""
    if value is not None and not isfinite(value):
        raise click.BadParameter(f"{value} is not a number of records", ctx, param)
    return value


def run_option(command: C, *, text: str, required: bool = False) -> C:
    """Add `--run`."""
    return click.option("--run", metavar="ID", required=required, callback=check_run, help=text)(command)


def rate_option(command: C) -> C:
    """Add `--rate`."""
    text = "Records per second.  [default: as fast as memory allows]"
    return click.option("--rate", type=click.FloatRange(0, min_open=True), callback=check_rate, help=text)(
        command
    )


def compression_option(command: C, *, default: str | None = None) -> C:
    """Add `--compression`; *default* applies if the configuration names no codec."""
    text = "Codec, such as zstd or lz4; the same as --option compression.type=TYPE."
    return click.option(
        "--compression",
        metavar="TYPE",
        shell_complete=complete_compression,
        help=text if default is None else f"{text}  [default: {default}]",
    )(command)


def producer_options(
    command: Callable[..., None], *, servers: str = "The Kafka cluster."
) -> Callable[..., None]:
    """Add the options of the cluster, its configuration, security and the log; *command* gets `ClusterOptions`."""

    @wraps(command)
    def with_cluster(
        *args: Any,
        bootstrap_servers: str | None,
        config_file: Path | None,
        settings: dict[str, str],
        **own: Any,
    ) -> None:
        command(*args, cluster=ClusterOptions(bootstrap_servers, config_file, settings), **own)

    bootstrap = click.option(
        "-b",
        "--bootstrap-servers",
        metavar="HOST:PORT",
        envvar=variable(SERVERS),
        show_envvar=True,
        callback=record_servers,
        help=servers,
    )
    file = click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A .properties file of a Kafka producer; options of the command line override it.",
    )
    option = click.option(
        "-o",
        "--option",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        callback=take_settings,
        shell_complete=complete_setting,
        help="A producer option, such as linger.ms=20; may be repeated. `aioproducer config` lists them.",
    )
    return bootstrap(file(file_options(option(security_options(logging_options(with_cluster))))))


def file_options(command: C) -> C:
    """Add the options of a configuration file: `--config-prefix` and `--config-providers`."""
    prefix = click.option(
        "--config-prefix",
        metavar="PREFIX",
        multiple=True,
        callback=partial(_keep, _PREFIX),
        expose_value=False,
        help="Read the options with this prefix or in this section, such as spring.kafka. or [default]; may be repeated.",
    )
    providers = click.option(
        "--config-providers",
        metavar="NAMES",
        callback=partial(_keep, _PROVIDERS),
        expose_value=False,
        help="Config providers that ${…} in values may name: env, file, directory, separated by commas.",
    )
    return prefix(providers(command))


def _keep(
    name: str, ctx: click.Context, _param: click.Parameter, value: str | tuple[str, ...] | None
) -> None:
    if value is not None:
        ctx.meta[name] = value


def config_prefixes() -> tuple[str, ...]:
    """Return the prefixes of options in the configuration file; later prefixes win."""
    prefixes: tuple[str, ...] = _of_context(_PREFIX, ())
    return prefixes


def config_providers() -> list[str]:
    """Return the allowed config providers of references in the configuration file."""
    return [each.strip() for each in _of_context(_PROVIDERS, "").split(",") if each.strip()]


def _of_context(name: str, default: Any) -> Any:
    context = click.get_current_context(silent=True)
    return default if context is None else context.meta.get(name, default)


def json_option(command: C) -> C:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def topic_argument(command: C) -> C:
    """Add the argument TOPIC with the alias `--topic`."""
    keep = partial(_keep, _TOPIC)
    option = click.option(
        "--topic", "topic_option", hidden=True, expose_value=False, is_eager=True, callback=keep
    )
    return click.argument("topic", metavar="TOPIC", required=False, callback=_one_topic)(option(command))


def _one_topic(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Return the topic. Raises: click.UsageError: the topic is missing, or given twice."""
    option = ctx.meta.get(_TOPIC)
    if value is not None and option is not None:
        raise click.UsageError("the topic is given twice: leave out --topic", ctx)
    topic = option if value is None else value
    if topic is None:
        raise click.MissingParameter(ctx=ctx, param=param)
    return check_topic_name(ctx, param, topic)
