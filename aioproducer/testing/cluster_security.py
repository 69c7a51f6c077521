"""Security of a cluster: TLS and SASL of its listeners, and the matching options of clients."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from aioproducer.testing.sasl_server import MECHANISMS, Accounts, SaslSettings

if TYPE_CHECKING:
    from aioproducer.testing.certificates import Authority, Identity

SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
KnownTokens: TypeAlias = Mapping[str, str] | Callable[[str], str | None]

PASSWORD_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
TOKEN_MECHANISM: Final = "OAUTHBEARER"  # noqa: S105 - a name


class Security:
    """Checked security arguments of a cluster, with the resulting TLS contexts and client options."""

    def __init__(
        self,
        protocol: SecurityProtocol,
        *,
        hosts: Iterable[str],
        sasl_mechanisms: Iterable[str] | None,
        users: Mapping[str, str] | None,
        tokens: KnownTokens | None,
        session_lifetime_s: float | None,
        client_auth: bool,
    ) -> None:
        if protocol not in get_args(SecurityProtocol):
            raise ValueError(
                f"security_protocol={protocol!r}: expected one of {', '.join(get_args(SecurityProtocol))}"
            )
        self._protocol = protocol
        self.accounts: Final = Accounts(
            _mapping("users", users), tokens if callable(tokens) else _mapping("tokens", tokens)
        )
        self.sasl: SaslSettings | None = None
        given = {
            "sasl_mechanisms": sasl_mechanisms,
            "users": users,
            "tokens": tokens,
            "session_lifetime_s": session_lifetime_s,
        }
        if protocol.startswith("SASL"):
            mechanisms = _mechanisms(sasl_mechanisms, self.accounts)
            _check_lifetime(session_lifetime_s)
            self.sasl = SaslSettings(
                accounts=self.accounts, mechanisms=mechanisms, session_lifetime_s=session_lifetime_s
            )
        elif surplus := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"{', '.join(surplus)}: only for SASL, and security_protocol is {protocol!r}: "
                "make it 'SASL_PLAINTEXT' or 'SASL_SSL'"
            )
        self._client_auth = client_auth
        self._hosts = tuple(hosts)
        self._authority: Authority | None = None
        self._client: Identity | None = None
        self.context: ssl.SSLContext | None = None
        """TLS context of the next connection; None without TLS."""
        if protocol.endswith("SSL"):
            self.renew(hosts=None, expired=False, new_authority=True)
        elif client_auth:
            raise ValueError(
                f"client_auth: only with TLS, and security_protocol is {protocol!r}: make it 'SSL' or 'SASL_SSL'"
            )

    def renew(self, *, hosts: Iterable[str] | None, expired: bool, new_authority: bool) -> None:
        """Use a new certificate for the next connections. Raises: RuntimeError without TLS."""
        if not self._protocol.endswith("SSL"):
            raise RuntimeError(f"a cluster that speaks {self._protocol} has no certificates")
        certificates = import_module("aioproducer.testing.certificates")
        if new_authority or self._authority is None:
            self._authority = certificates.Authority()
            self._client = self._authority.issue("client") if self._client_auth else None
        shown = self._authority.issue("broker", self._hosts if hosts is None else hosts, expired=expired)
        self.context = certificates.server_context(
            shown, clients_of=self._authority.pem if self._client_auth else None
        )

    @property
    def ca_pem(self) -> str:
        """Certificate of the authority, as PEM. Raises: RuntimeError without TLS."""
        if self._authority is None:
            raise RuntimeError(f"a cluster that speaks {self._protocol} has no certificates")
        return self._authority.pem

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of a producer for the current certificates and accounts."""
        if self._protocol == "PLAINTEXT":
            return {}
        options: dict[str, Any] = {"security_protocol": self._protocol}
        if self._authority is not None:
            options["ssl_truststore_certificates"] = self._authority.pem
        if self._client is not None:
            options["ssl_keystore_certificate_chain"] = self._client.certificate
            options["ssl_keystore_key"] = self._client.key
        if self.sasl is not None:
            mechanism = options["sasl_mechanism"] = self.sasl.mechanisms[0]
            tokens, users = self.accounts.tokens, self.accounts.users
            if mechanism in PASSWORD_MECHANISMS and users:
                options["sasl_username"], options["sasl_password"] = next(iter(users.items()))
            elif mechanism == TOKEN_MECHANISM and not callable(tokens):
                options["sasl_oauth_token_provider"] = lambda: next(iter(tokens))
        return options


def _mechanisms(names: Iterable[str] | None, accounts: Accounts) -> tuple[str, ...]:
    """Return the mechanisms of a listener. Raises: TypeError; ValueError: unknown, or without accounts."""
    by_token = callable(accounts.tokens) or bool(accounts.tokens)
    if names is None:
        chosen = (*(PASSWORD_MECHANISMS if accounts.users else ()), *((TOKEN_MECHANISM,) if by_token else ()))
        if not chosen:
            raise ValueError(
                'SASL needs accounts: set users={"alice": "password"} or tokens={"token": "alice"}'
            )
        return chosen
    if isinstance(names, str):
        raise TypeError(f"sasl_mechanisms is a list of names, such as [{names!r}], not {names!r}")
    chosen = tuple(names)
    if not chosen:
        raise ValueError("sasl_mechanisms is empty; leave it out for all that users and tokens make possible")
    for name in chosen:
        if name not in MECHANISMS:
            raise ValueError(f"{name!r} is no mechanism of this broker; it has {', '.join(MECHANISMS)}")
        if name == TOKEN_MECHANISM and not by_token:
            raise ValueError(f'{name} needs tokens: set tokens={{"token": "alice"}}, or a callable')
        if name != TOKEN_MECHANISM and not accounts.users:
            raise ValueError(f'{name} needs users: set users={{"alice": "password"}}')
    return chosen


def _mapping(argument: str, given: object) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(
        isinstance(text, str) and text for pair in given.items() for text in pair
    ):
        # the message omits the value, which may contain secrets
        raise TypeError(f"{argument} is a mapping of texts to texts, and none of them empty")
    return dict(given)


def _check_lifetime(s: object) -> None:
    if s is None:
        return
    if not isinstance(s, int | float) or isinstance(s, bool):
        raise TypeError(f"session_lifetime_s must be a number of seconds, not {s!r}")
    if not 0 < s < 1e9:
        raise ValueError(f"session_lifetime_s={s}: a session lives for more than 0 s; None is for ever")
