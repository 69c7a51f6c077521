"""Options for TLS and SASL. Secrets come from files and the environment, because `ps` shows arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

C = TypeVar("C", bound=Callable[..., Any] | click.Command)

GIVEN: Final = f"{__name__}.given"
"""Key of a context's `meta`: options for TLS and SASL, by Kafka's names."""
FLAGS: Final = f"{__name__}.flags"
"""Key of a context's `meta`: options and environment variables that set options, by Kafka's names."""
SERVERS: Final = "bootstrap.servers"
ALLOWED_FILES: Final = "sasl.oauthbearer.allowed.files"
ALLOWED_URLS: Final = "sasl.oauthbearer.allowed.urls"
PASSWORD: Final = "sasl.password"  # noqa: S105 - a name
IN_FILES: Final = ("ssl.keystore.certificate.chain", "ssl.keystore.key")
"""Secrets whose value may be the path of a file, which is no secret."""
_OTHER_SECRETS: Final = ("auth.user.info", "password", "secret", "token")
"""Suffixes of names of other clients' secrets, such as `basic.auth.user.info`."""
_NAME: Final = re.compile(r"(?<![\w.\]-])(?:bootstrap|sasl|security|ssl)(?:[._][a-z0-9]+)+\b")


_FLAGS: Final = {
    PASSWORD: ("--password-file", "FILE", "File with the password."),
    "sasl.username": ("--username", "NAME", "User name for PLAIN and SCRAM."),
    "sasl.mechanism": ("--sasl-mechanism", "NAME", "SASL mechanism, such as SCRAM-SHA-512."),
    "ssl.keystore.key": ("--key", "FILE", "Private key as PEM, if --cert does not have it."),
    "ssl.keystore.location": ("--cert", "FILE", "Client certificate and key, PEM or PKCS12."),
    "ssl.truststore.location": ("--ca", "FILE", "Trusted CA certificates.  [default: the system's]"),
    "security.protocol": ("--security-protocol", "NAME", "SSL, SASL_SSL or SASL_PLAINTEXT."),
}
"""Flag, metavar and help of each option, by Kafka's name."""


def security_options(command: C) -> C:
    """Add `--security-protocol` and the other options for `with_security`."""
    for name, (flag, metavar, text) in _FLAGS.items():
        kind = click.Path(exists=True, dir_okay=False) if metavar == "FILE" else None
        callback = partial(_keep, name)
        command = click.option(
            flag, metavar=metavar, type=kind, callback=callback, expose_value=False, help=text
        )(command)
    return allowed_options(command)


def allowed_options(command: C) -> C:
    """Add the options that replace the lists of allowed files and URLs in the environment."""
    texts = {
        ALLOWED_URLS: "Token endpoints that OAUTHBEARER's options may name, separated by commas.  [default: any]",
        ALLOWED_FILES: "Files that OAUTHBEARER's options may name, separated by commas.",
    }
    for name, text in texts.items():
        flag, metavar = f"--{name.replace('.', '-')}", name.rpartition(".")[2].upper()
        callback = partial(_allow, name)
        command = click.option(flag, metavar=metavar, callback=callback, expose_value=False, help=text)(
            command
        )
    return command


def _allow(option: str, ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    """Set the list in the environment for this command, because configurations read the list from the environment."""
    if value is None:
        return
    name = variable(option)
    before = os.environ.get(name)
    os.environ[name] = value

    def restore() -> None:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before

    ctx.call_on_close(restore)


def given() -> dict[str, str]:
    """Return the command line's options for TLS and SASL, by Kafka's names."""
    context = click.get_current_context(silent=True)
    named: dict[str, str] = {} if context is None else dict(context.meta.get(GIVEN, {}))
    if "ssl.keystore.key" in named and "ssl.keystore.location" in named:
        named["ssl.keystore.certificate.chain"] = named.pop("ssl.keystore.location")
    return named


def with_security(settings: dict[str, str]) -> dict[str, str]:
    """Return *settings* with the options for TLS and SASL of the command line, then secrets of the environment.

    Variables such as AIOPRODUCER_SASL_PASSWORD have the secrets; they are ignored with PLAINTEXT.
    """
    on_the_line = given()
    settings = settings | on_the_line
    if settings.get("security.protocol", "PLAINTEXT").strip().upper() == "PLAINTEXT":
        return settings
    context = click.get_current_context(silent=True)
    for name in secret_names() - on_the_line.keys():
        if value := os.environ.get(variable(name)):
            settings[name] = value
            if context is not None:
                context.meta.setdefault(FLAGS, {})[name] = variable(name)
    return settings


def with_flag_names(text: str, context: click.Context) -> str:
    """Return the text of an error with the options of the command line, environment variables and Kafka's names."""
    flags: dict[str, str] = context.meta.get(FLAGS, {})

    def name(found: re.Match[str]) -> str:
        dotted = found[0].replace("_", ".")
        return flags.get(dotted, found[0] if "." in found[0] else dotted)

    return _NAME.sub(name, text)


def record_servers(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Store the source of the servers, option or environment variable, for error texts."""
    if value is not None:
        by_variable = ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT
        ctx.meta.setdefault(FLAGS, {})[SERVERS] = variable(SERVERS) if by_variable else "--bootstrap-servers"
    return value


def servers_by_variable(context: click.Context) -> bool:
    """Return True if the environment names the servers."""
    return bool(context.meta.get(FLAGS, {}).get(SERVERS) == variable(SERVERS))


def secret_names() -> set[str]:
    """Return Kafka's names of the options whose values are secrets."""
    from aioproducer.config.object_kinds import SecretKind
    from aioproducer.config.options import KINDS

    return {name.replace("_", ".") for name, kind in KINDS.items() if isinstance(kind, SecretKind)}


def kafka_name(name: str) -> str:
    """Return Kafka's name of an option that other clients call *name*."""
    from aioproducer.config.names import KAFKA_NAMES

    return KAFKA_NAMES.get(name, name)


def refuse_secret(ctx: click.Context, param: click.Parameter, name: str, value: str) -> None:
    """Refuse a secret in an argument, without repeating its value."""
    option = kafka_name(name)
    if (option in secret_names() or name.endswith(_OTHER_SECRETS)) and not (
        option in IN_FILES and Path(value.strip()).is_file()
    ):
        environment = f", or into the environment as {variable(option)}" if option in secret_names() else ""
        raise click.BadParameter(
            f"other users of this machine can see {name} in an argument; put it into --config{environment}",
            ctx,
            param,
        )


def refuse_twice(settings: dict[str, str]) -> None:
    """Refuse settings that have an option of their own on the command line."""
    if twice := sorted(settings.keys() & given().keys()):
        raise click.UsageError(f"an option of its own already sets {twice[0]}")


def _keep(name: str, ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        try:
            if name == PASSWORD:
                value = Path(value).read_text(encoding="utf-8").rstrip("\r\n")
            ctx.meta.setdefault(GIVEN, {})[name] = value
            ctx.meta.setdefault(FLAGS, {})[name] = param.opts[0]
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise click.BadParameter(f"{value}: {why}", ctx, param) from None


def variable(name: str) -> str:
    """Return the environment variable of an option."""
    return f"AIOPRODUCER_{name.replace('.', '_').upper()}"
