"""SASL exchanges without I/O, and their factory.

`start()` returns the first message for SaslAuthenticate. `answer()` returns the next message for each response, None at
the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aioproducer._core.address import Address
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import LONGEST_TEXT, escaped
from aioproducer._core.security.aws_msk_iam import AwsMskIam, BotocoreCredentials
from aioproducer._core.security.gssapi import Gssapi, KerberosSettings
from aioproducer._core.security.mechanism import Mechanism, MechanismFactory, Refused
from aioproducer._core.security.oauthbearer import (
    OAuthBearer,
    SharedTokens,
    Token,
    from_provider,
)
from aioproducer._core.security.passwords import HASHES, Credentials, Plain, Scram
from aioproducer._core.security.secret import SecretBytes, redacted, without_frames
from aioproducer._core.security.security_settings import EndpointSettings, SaslSettings, UnsecuredSettings
from aioproducer._core.security.token_endpoint import TokenEndpoint, from_file, unsecured
from aioproducer._core.worker_threads import CALL_THREADS, NoThread
from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    broker_error,
)

MOST_ROUNDS: Final = 16
"""Maximum number of challenges of a broker. SCRAM needs two, Kerberos three."""
LONGEST_MESSAGE: Final = 1024 * 1024

_WHAT_TO_DO: Final = {
    "PLAIN": "check user name and password, and whether the listener knows this user",
    "SCRAM-SHA-256": "check user name and password, and that the user was made for SCRAM-SHA-256",
    "SCRAM-SHA-512": "check user name and password, and that the user was made for SCRAM-SHA-512",
    "OAUTHBEARER": "check the token's expiry, audience, issuer and scope against what the listener expects",
    "GSSAPI": "check the ticket or keytab, the clocks, and sasl_kerberos_service_name",
    "AWS_MSK_IAM": "check the AWS credentials, the region, the clock, and the IAM policy (kafka-cluster:Connect)",
}


class Exchange:
    """Exchange of one mechanism with one broker. Errors name mechanism and broker: AuthenticationFailed, or ConnectionFailed."""

    def __init__(self, mechanism: Mechanism, broker: Address) -> None:
        self.mechanism: Mechanism = mechanism
        self.broker: Address = broker
        self._rounds = 0

    async def start(self) -> SecretBytes:
        """Return the first message. Raises: AuthenticationFailed."""
        return await self._called(lambda: self.mechanism.start(self.broker))

    async def answer(self, challenge: bytes) -> SecretBytes | None:
        """Return the response to *challenge*; None at the end of the exchange.

        Raises: AuthenticationFailed.
        """
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            raise self._failed(
                f"the broker sent {self._rounds} challenges; at most {MOST_ROUNDS} are expected"
            )
        if len(challenge) > LONGEST_MESSAGE:
            raise self._failed(f"the broker has sent a challenge of {len(challenge):,} bytes")
        if not hasattr(self.mechanism, "complete"):
            return (
                (await self._called(lambda: self.mechanism.respond(challenge)) or None) if challenge else None
            )
        message = await self._called(lambda: self.mechanism.respond(challenge))
        return None if self.mechanism.complete and not message else message

    @property
    def proof(self) -> object:
        """Credentials of this login, for comparison with later credentials; None if unknown."""
        return getattr(self.mechanism, "proof", None)

    @property
    def is_complete(self) -> bool:
        """True if the mechanism expects no other message; False if unknown."""
        return bool(getattr(self.mechanism, "complete", False))

    @property
    def is_refused(self) -> bool:
        """True once the broker has sent the reason of a refusal. The next response is the refusal."""
        return isinstance(self.mechanism, OAuthBearer) and bool(self.mechanism.detail)

    def refused(self, code: int, message: str | None, offered: Sequence[str] = ()) -> AuthenticationFailed:
        """Return the error for a response with an error *code*, with the text of the broker."""
        name = self.mechanism.name
        message = self._cleaned(message or "")
        said = f": {message}" if message else ""
        kind = broker_error(code)
        if kind is SaslAuthenticationFailed:
            if isinstance(self.mechanism, OAuthBearer):
                self.mechanism.refused()
            hint = _WHAT_TO_DO.get(name, "check the credentials")
            detail = escaped(str(getattr(self.mechanism, "detail", "")), LONGEST_TEXT)
            said += f" ({detail})" if detail and detail not in said else ""
            text = f"{self.broker} refused the login by {name}{said}; {hint}"
            return SaslAuthenticationFailed(text, broker=str(self.broker), mechanism=name)
        if kind is UnsupportedSaslMechanism:
            has = f"it has {self._cleaned(', '.join(offered))}" if offered else "it lists none"
            text = f"{self.broker} does not take {name} on this listener; {has}: set sasl_mechanism to one of them"
        elif kind is IllegalSaslState:
            text = f"{self.broker} refused the login{said}: the listener may have no SASL; set security_protocol without SASL"
        else:
            text = f"{self.broker} answered the login by {name} with {kind.__name__}{said}"
        failed = AuthenticationFailed(text, broker=str(self.broker), mechanism=name)
        failed.__cause__ = kind(message)
        return failed

    async def _called(self, call: Callable[[], bytes | Awaitable[bytes]]) -> SecretBytes:
        try:
            message: object = call()
            if inspect.isawaitable(message):
                message = await message
        except AuthenticationFailed as error:
            without_frames(error)
            raise self._failed(str(error)) from (error.__cause__ or error)
        except Refused as error:
            without_frames(error)
            raise self._failed(str(error)) from error.__cause__
        except NoThread as error:  # a temporary failure: no broker refused the credentials
            without_frames(error)
            name = self.mechanism.name
            raise ConnectionFailed(f"no login by {name} at {self.broker}: {error}", written=False) from error
        except Exception as error:
            # The text of a user's mechanism or callable may contain a secret, so only the type is shown.
            without_frames(error)
            raise self._failed(f"it raised {type(error).__name__}, which is the cause") from error
        if not isinstance(message, bytes):
            kind = type(message).__name__
            del message  # tracebacks contain the variables of this frame
            raise self._failed(f"the mechanism returned {kind}; it has to return bytes")
        return SecretBytes(message)

    def _cleaned(self, text: str) -> str:
        """Return the broker's *text* with secrets hidden, escaped and cut."""
        return escaped(redacted(text, *getattr(self.mechanism, "secrets", ())), LONGEST_TEXT)

    def _failed(self, why: str) -> AuthenticationFailed:
        name = self.mechanism.name
        why = redacted(why, *getattr(self.mechanism, "secrets", ()))
        return AuthenticationFailed(
            f"no login by {name} at {self.broker}: {why}", broker=str(self.broker), mechanism=name
        )


class ExchangeFactory:
    """Factory of one `Exchange` per authentication. Close the factory with the producer."""

    def __init__(self, settings: SaslSettings, limits: LogLimits | None = None) -> None:
        self._limits = limits
        self._tokens: SharedTokens | None = None
        self._credentials: Credentials | None = None
        self._kerberos: KerberosSettings | None = None
        self._aws: BotocoreCredentials | None = None
        self._make: MechanismFactory = self._factory(settings)

    def exchange(self, broker: Address) -> Exchange:
        """Return the exchange of one authentication at *broker*.

        Raises: AuthenticationFailed if the user's factory fails.
        """
        try:
            mechanism: object = self._make()
        except Exception as error:
            without_frames(error)
            raise AuthenticationFailed(
                f"no login at {broker}: sasl_mechanism raised {type(error).__name__}, which is the cause",
                broker=str(broker),
            ) from error
        if not isinstance(mechanism, Mechanism) or not isinstance(mechanism.name, str):
            raise AuthenticationFailed(
                f"no login at {broker}: sasl_mechanism has to return an object with name, start and respond,"
                f" and returned {type(mechanism).__name__}",
                broker=str(broker),
            )
        return Exchange(mechanism, broker)

    async def differ(self, refused: object) -> bool:
        """Return True if the current credentials differ from *refused*, the `proof` of a login.

        Raises: errors of the callable that returns the credentials.
        """
        if self._tokens is not None:
            return await self._tokens.differs(refused)
        if self._credentials is not None:
            return await self._credentials.differs(refused)
        if self._aws is not None:
            return await CALL_THREADS.run(self._aws) != refused
        return self._kerberos is not None and self._kerberos.keytab_state() != refused

    def close(self) -> None:
        """Cancel the renewal of tokens."""
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
                timeout_s=settings.login_timeout_s / 2,
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
