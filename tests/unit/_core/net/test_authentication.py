from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.net import authentication as module
from aioproducer._core.net.authentication import LATE_S, MIN_INTERVAL_S
from aioproducer._core.protocol.client import SaslHandshakeRequest
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.security.exchange import Exchange
from aioproducer._core.security.mechanism import Refused
from aioproducer._core.security.oauthbearer import OAuthBearer, SharedTokens, Token
from aioproducer._core.security.secret import Secret
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, SaslAuthenticationFailed
from aioproducer.testing import in_virtual_time
from tests.unit._core.net.authentication_rig import LIFETIME_S, Rig, now
from tests.unit.floor_rig import settle


class TestFirstLogin:
    @in_virtual_time
    async def test_first_login_sends_mechanism_name_and_first_message(self) -> None:
        rig = Rig()
        logging_in = rig.log_in()
        await settle()
        # no secret is in it, so it need not wait for what the broker says to the mechanism
        assert rig.connection.take() == ["by SCRAM-SHA-256", "first"]
        await rig.connection.welcome()
        await rig.connection.answer(b"challenge")
        assert rig.connection.take() == ["proof"]
        await rig.connection.answer(b"verified")
        await logging_in
        assert rig.connection.take() == ["logged in"]

    @pytest.mark.parametrize("name", ["PLAIN", "OAUTHBEARER", "of-the-user"])
    @in_virtual_time
    async def test_secret_is_sent_after_the_broker_accepts_the_mechanism(self, name: str) -> None:
        rig = Rig(name)
        logging_in = rig.log_in()
        await settle()
        assert rig.connection.take() == [f"by {name}"]
        await rig.connection.welcome()
        assert rig.connection.take() == ["first"]
        await rig.connection.answer()
        await logging_in

    @in_virtual_time
    async def test_unsupported_mechanism_error_lists_those_of_the_broker(self) -> None:
        rig = Rig()
        logging_in = rig.log_in()
        await rig.connection.welcome(error_code=33)
        with pytest.raises(AuthenticationFailed, match="it has PLAIN"):
            await logging_in
        rig.connection.close(ConnectionFailed("hung up"))  # no task waits for the second response
        assert "logged in" not in rig.connection.told

    @in_virtual_time
    async def test_refused_login_error_has_the_message_of_the_broker(self) -> None:
        rig = Rig("PLAIN")
        logging_in = rig.log_in()
        await rig.connection.welcome()
        await rig.connection.answer(error_code=58)
        with pytest.raises(SaslAuthenticationFailed, match="b:1 refused the login by PLAIN: no such user"):
            await logging_in

    @in_virtual_time
    async def test_malformed_challenge_fails_the_login(self) -> None:
        rig = Rig()
        logging_in = rig.log_in()
        await rig.connection.welcome()
        await rig.connection.answer(b"nonsense")
        with pytest.raises(AuthenticationFailed, match="that is no challenge"):
            await logging_in

    @in_virtual_time
    async def test_login_fails_after_too_many_challenges(self) -> None:
        rig = Rig()
        logging_in = rig.log_in()
        await rig.connection.welcome()
        while not logging_in.done():
            await rig.connection.answer(b"challenge")
        with pytest.raises(AuthenticationFailed, match="challenges; at most 16 are expected"):
            await logging_in

    @in_virtual_time
    async def test_login_raises_the_error_of_a_lost_connection(self) -> None:
        rig = Rig()
        logging_in = rig.log_in()
        await settle()
        rig.connection.close(ConnectionFailed("lost"))
        with pytest.raises(ConnectionFailed, match="lost"):
            await logging_in

    @in_virtual_time
    async def test_session_without_lifetime_needs_no_second_login(self) -> None:
        rig = Rig()
        await rig.authenticated(lifetime_s=0)
        await asyncio.sleep(1e6)
        assert rig.connection.told == []

    @pytest.mark.parametrize("highest", [0, 1])
    @in_virtual_time
    async def test_last_token_without_header_needs_no_answer(self, highest: int) -> None:
        rig = Rig("GSSAPI")
        rig.connection.versions = ApiVersionTable({SaslHandshakeRequest.API_KEY: (0, highest)})
        logging_in = rig.log_in()
        await rig.connection.welcome()
        await rig.connection.answer(b"challenge")
        assert not logging_in.done()
        await rig.connection.answer(b"offer")
        assert logging_in.done() == (highest == 0)
        if not logging_in.done():
            await rig.connection.answer()
        await logging_in
        assert rig.connection.take() == ["by GSSAPI", "first", "proof", "choice", "logged in"]

    @pytest.mark.parametrize("is_answered", [True, False])
    @in_virtual_time
    async def test_refused_token_error_has_the_detail_of_the_broker(self, is_answered: bool) -> None:
        """A broker sends the reason first, and may close the connection in place of the refusal."""

        async def token() -> Token:
            return Token(Secret("abc.def"), None, {})

        rig = Rig()
        rig.authenticator._new_exchange = lambda: Exchange(OAuthBearer(tokens), rig.connection.address)
        tokens = SharedTokens(token, backoff=Backoff(1.0, 1.0))
        logging_in = rig.log_in()
        await rig.connection.welcome()
        await rig.connection.answer(b'{"status":"invalid_token"}')
        if is_answered:
            await rig.connection.answer(error_code=58)
        with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
            await logging_in
        assert now() - rig.began_at == (0 if is_answered else module.REFUSAL_WAIT_S)
        assert rig.security.outcomes == ["refused"]


class TestReauthentication:
    @in_virtual_time
    async def test_connection_is_closed_when_the_login_raises_anything(self) -> None:
        rig = Rig()
        await rig.authenticated()

        def cancelled() -> bytes:
            raise asyncio.CancelledError

        rig.security.start = cancelled
        await asyncio.sleep(LIFETIME_S)
        assert rig.connection.closed
        assert "(no credentials yet) ended with CancelledError" in str(rig.connection.cause)

    @in_virtual_time
    async def test_reauthentication_is_jittered_before_the_session_ends(self) -> None:
        began = []
        for _ in range(20):
            rig = Rig()
            await rig.authenticated()
            began.append(await rig.at_the_next_login())
            rig.connection.close()
        assert min(began) >= 0.85 * LIFETIME_S
        assert max(began) <= 0.95 * LIFETIME_S
        assert max(began) - min(began) > 1

    @in_virtual_time
    async def test_session_lifetime_counts_from_sending_the_login(self) -> None:
        """The broker may start the session before its response arrives over a slow network."""
        rig = Rig("PLAIN")
        logging_in = rig.log_in()
        await rig.connection.welcome()
        rig.began_at = now()
        await asyncio.sleep(LIFETIME_S / 2)
        await rig.connection.answer(b"", lifetime_s=LIFETIME_S)
        await logging_in
        rig.connection.take()
        assert await rig.at_the_next_login() <= 0.95 * LIFETIME_S
        rig.connection.close()

    @pytest.mark.parametrize(("lifetime_s", "after_s"), [(2.0, 1.94), (3.0, 1.5), (12.0, 7.0), (100.0, 95.0)])
    @in_virtual_time
    async def test_short_session_reauthenticates_with_time_to_spare(
        self, monkeypatch: pytest.MonkeyPatch, lifetime_s: float, after_s: float
    ) -> None:
        monkeypatch.setattr(module, "REAUTHENTICATE_AT", (0.97, 0.97))
        rig = Rig()
        await rig.authenticated(lifetime_s=lifetime_s)
        assert await rig.at_the_next_login() == pytest.approx(after_s)
        rig.connection.close()

    @in_virtual_time
    async def test_reauthentication_keeps_the_minimum_interval(self) -> None:
        rig = Rig()
        await rig.authenticated(lifetime_s=0.5)
        assert await rig.at_the_next_login() >= MIN_INTERVAL_S
        rig.connection.close()

    @in_virtual_time
    async def test_requests_are_paused_during_a_login_of_several_messages(self) -> None:
        rig = Rig()
        await rig.authenticated()
        await rig.at_the_next_login()
        assert rig.connection.take() == ["hold", "by SCRAM-SHA-256", "first"]
        await rig.connection.welcome()
        await rig.connection.answer(b"challenge")
        assert rig.connection.take() == ["proof"]
        await rig.connection.answer(b"verified", lifetime_s=LIFETIME_S)
        assert rig.connection.take() == ["release"]
        await rig.at_the_next_login()  # and so on
        rig.connection.close()

    @in_virtual_time
    async def test_requests_are_paused_during_a_login_when_one_way(self) -> None:
        rig = Rig("PLAIN")
        rig.connection.is_one_way = True
        await rig.authenticated()
        await rig.at_the_next_login()
        assert rig.connection.take() == ["hold", "by PLAIN", "first"]
        await rig.connection.welcome()
        await rig.connection.answer()
        assert rig.connection.take() == ["release"]

    @pytest.mark.parametrize("name", ["PLAIN", "OAUTHBEARER"])
    @in_virtual_time
    async def test_requests_are_not_paused_during_a_login_of_one_message(self, name: str) -> None:
        rig = Rig(name)
        await rig.authenticated()
        await rig.at_the_next_login()
        assert rig.connection.take() == [f"by {name}", "first"]
        await rig.connection.welcome()
        await rig.connection.answer()
        assert rig.connection.take() == []

    @in_virtual_time
    async def test_refused_reauthentication_closes_with_requests_held_back(self) -> None:
        """A broker that refused the login accepts no records, so none may be sent."""
        rig = Rig()
        await rig.authenticated()
        await rig.at_the_next_login()
        await rig.connection.welcome()
        await rig.connection.answer(error_code=58)
        assert isinstance(rig.connection.cause, SaslAuthenticationFailed)
        assert "release" not in rig.connection.told

    @in_virtual_time
    async def test_unanswered_reauthentication_closes_after_session_end(self) -> None:
        rig = Rig()
        await rig.authenticated()
        await rig.connection.gone.wait()
        assert now() - rig.began_at == pytest.approx(LIFETIME_S + LATE_S)
        assert "its session ended, and the login by SCRAM-SHA-256 was not over" in str(rig.connection.cause)
        assert "release" not in rig.connection.told

    @in_virtual_time
    async def test_throttle_time_does_not_count_against_the_login(self) -> None:
        rig = Rig()
        await rig.authenticated()
        await rig.at_the_next_login()
        rig.connection.throttled_until = rig.began_at + LIFETIME_S + 60
        await asyncio.sleep(LIFETIME_S + 60 + LATE_S - (now() - rig.began_at) - 1)
        assert not rig.connection.closed
        await rig.connection.gone.wait()
        assert now() - rig.began_at == pytest.approx(LIFETIME_S + 60 + LATE_S)

    @in_virtual_time
    async def test_login_that_ends_in_time_leaves_the_connection_open(self) -> None:
        rig = Rig()
        await rig.authenticated()
        await rig.at_the_next_login()
        rig.connection.throttled_until = now() + 3 * LIFETIME_S
        await asyncio.sleep(2 * LIFETIME_S)
        await rig.connection.welcome()
        await rig.connection.answer(b"challenge")
        await rig.connection.answer(b"")
        await asyncio.sleep(10 * LIFETIME_S)
        assert not rig.connection.closed

    @in_virtual_time
    async def test_reauthentication_is_retried_while_the_session_lasts(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = Rig()
        await rig.authenticated()
        failures = [OSError("the disk is away"), OSError("still"), OSError("still")]

        def start() -> bytes:
            if failures:
                raise failures.pop()
            return b"first"

        rig.security.start = start
        with caplog.at_level(logging.WARNING, module.__name__):
            await rig.at_the_next_login()
        assert rig.connection.take() == ["hold", "by SCRAM-SHA-256", "first"]
        assert rig.security.begun == 5
        (said,) = caplog.messages
        assert said.startswith("connection.reauthentication_delayed address=b:1 error=")
        assert "the disk" not in said
        rig.connection.close()

    @in_virtual_time
    async def test_failed_start_of_reauthentication_closes_at_session_end(self) -> None:
        rig = Rig()
        await rig.authenticated()

        def start() -> bytes:
            raise OSError("the disk is away")

        rig.security.start = start
        await rig.connection.gone.wait()
        assert now() - rig.began_at <= LIFETIME_S
        assert isinstance(rig.connection.cause, AuthenticationFailed)
        assert rig.connection.told == []


class TestClosedConnection:
    @in_virtual_time
    async def test_closed_connection_starts_no_login(self) -> None:
        rig = Rig()
        await rig.authenticated()
        rig.connection.close()
        await asyncio.sleep(LIFETIME_S)
        assert rig.connection.told == []

    @in_virtual_time
    async def test_login_in_progress_ends_with_the_connection(self) -> None:
        rig = Rig()
        await rig.authenticated()
        await rig.at_the_next_login()
        rig.connection.close(ConnectionFailed("lost"))
        await settle()
        assert len(asyncio.all_tasks()) == 1
        assert "release" not in rig.connection.told

    @in_virtual_time
    async def test_retired_connection_starts_no_login(self) -> None:
        rig = Rig()
        await rig.authenticated()
        rig.connection.closed = True  # as `Connection.closed` is once it is retired
        await asyncio.sleep(LIFETIME_S)
        assert rig.connection.told == []


@pytest.mark.parametrize(("keytab", "outcomes"), [((1, 2, 3), ["refused"]), (None, [])])
@in_virtual_time
async def test_kdc_that_refuses_a_keytab_paces_logins(keytab: object, outcomes: list[str]) -> None:
    rig = Rig("GSSAPI")

    def refused() -> bytes:
        raise Refused("Kerberos reports: Preauthentication failed")

    rig.security.start = refused
    rig.security.proof = keytab
    with pytest.raises(AuthenticationFailed, match="Preauthentication"):
        await rig.log_in()
    assert rig.security.outcomes == outcomes


@in_virtual_time
async def test_outcome_of_each_login_paces_the_next() -> None:
    rig = Rig("PLAIN")
    logging_in = rig.log_in()
    await rig.connection.welcome()
    await rig.connection.answer(error_code=58)
    with pytest.raises(SaslAuthenticationFailed):
        await logging_in
    assert rig.security.outcomes == ["refused"]
