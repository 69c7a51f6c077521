"""Logins: a mechanism for each authentication of a producer, and what its connections share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aioproducer._core.log_limits import LogLimits
from aioproducer._core.security.aws_msk_iam import AwsMskIam, BotocoreCredentials
from aioproducer._core.security.credentials import Credentials
from aioproducer._core.security.exchange import Exchange
from aioproducer._core.security.gssapi import Gssapi, KerberosSettings
from aioproducer._core.security.mechanism import Broker, Mechanism, MechanismFactory
from aioproducer._core.security.oauthbearer import OAuthBearer
from aioproducer._core.security.plain import Plain
from aioproducer._core.security.scram import HASHES, Scram
from aioproducer._core.security.secret import without_frames
from aioproducer._core.security.security_settings import EndpointSettings, SaslSettings, UnsecuredSettings
from aioproducer._core.security.token_endpoint import TokenEndpoint, from_file, unsecured
from aioproducer._core.security.tokens import SharedTokens, Token, TokenSource, from_provider
from aioproducer._core.worker_threads import CALL_THREADS
from aioproducer.errors import AuthenticationFailed


class Logins:
    """Makes an `Exchange` for each authentication; close it with the producer."""

    def __init__(self, settings: SaslSettings, limits: LogLimits | None = None) -> None:
        self._limits = limits
        self._tokens: TokenSource | None = None
        self._credentials: Credentials | None = None
        self._kerberos: KerberosSettings | None = None
        self._aws: BotocoreCredentials | None = None
        self._make: MechanismFactory = self._factory(settings)

    def exchange(self, broker: Broker) -> Exchange:
        """Return what logs in at *broker*, once.

        Raises: AuthenticationFailed if the user's factory does.
        """
        try:
            mechanism: object = self._make()
        except Exception as error:
            without_frames(error)
            raise AuthenticationFailed(
                f"no login at {broker}: sasl_mechanism raised {type(error).__name__}, which is the cause",
                broker=str(broker),
            ) from error
        if not isinstance(mechanism, Mechanism) or not _is_text(mechanism.name):
            raise AuthenticationFailed(
                f"no login at {broker}: sasl_mechanism has to return an object with name, start and respond,"
                f" and returned {type(mechanism).__name__}",
                broker=str(broker),
            )
        return Exchange(mechanism, broker)

    async def differ(self, refused: object) -> bool:
        """Return True if the current credentials differ from *refused*, the `proof` of a login.

        Raises: what asking for them raises.
        """
        if self._tokens is not None:
            return await self._tokens.differs(refused)
        if self._credentials is not None:
            return await self._credentials.differs(refused)
        if self._aws is not None:
            return await CALL_THREADS.run(self._aws) != refused
        return self._kerberos is not None and self._kerberos.keytab_state() != refused

    def close(self) -> None:
        """Renew no token any more."""
        if self._tokens is not None:
            self._tokens.close()

    def _factory(self, settings: SaslSettings) -> MechanismFactory:
        name = settings.mechanism
        if not isinstance(name, str):
            return name
        if name == "OAUTHBEARER":
            tokens = self._tokens = SharedTokens(
                _fetcher(settings),
                backoff=settings.backoff,
                limits=self._limits,
                patience_s=settings.login_timeout_s / 2,
            )
            return lambda: OAuthBearer(tokens)
        if name == "GSSAPI":
            kerberos = self._kerberos = settings.kerberos
            assert kerberos is not None, "checked by the configuration"
            return lambda: Gssapi(kerberos)
        if name == "AWS_MSK_IAM":
            aws = self._aws = BotocoreCredentials()
            return lambda: AwsMskIam(aws)
        assert settings.credentials is not None, "checked by the configuration"
        credentials = self._credentials = Credentials(
            settings.credentials, self._limits, settings.login_timeout_s
        )
        if name in HASHES:
            return lambda: Scram(name, credentials, token_auth=settings.token_auth)
        assert name == "PLAIN", "checked by the configuration"
        return lambda: Plain(credentials)


def _is_text(name: object) -> bool:
    return isinstance(name, str)


def _fetcher(settings: SaslSettings) -> Callable[[], Awaitable[Token]]:
    match settings.tokens:
        case EndpointSettings() as endpoint:
            return TokenEndpoint(endpoint, settings.extensions).fetch
        case UnsecuredSettings() as claims:
            return unsecured(claims, settings.extensions)
        case str() as url:
            return from_file(url, settings.extensions)
        case None:
            raise AssertionError("checked by the configuration")
        case provider:
            return from_provider(provider, settings.login_timeout_s)
