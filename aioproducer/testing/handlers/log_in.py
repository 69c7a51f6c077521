"""SaslHandshake, SaslAuthenticate: who the client is."""

from __future__ import annotations

from aioproducer._core.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aioproducer.errors import UnsupportedSaslMechanism
from aioproducer.testing.faults import HangUp
from aioproducer.testing.handlers.call import Call
from aioproducer.testing.refusal import Refused


async def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Let the client choose a mechanism."""
    if call.version == 0:
        raise HangUp("the login of version 0, in messages without headers, is not served")
    code = 0
    try:
        with call.strike.around():
            call.session.choose(request.mechanism)
    except Refused as refused:
        code = refused.code
        call.session.refuse()
    told = call.session.mechanisms if code in {0, UnsupportedSaslMechanism.code} else []
    return SaslHandshakeResponse(error_code=code, mechanisms=told)


async def sasl_authenticate(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Hand one message to the mechanism."""
    try:
        with call.strike.around():
            answer, lifetime_ms = call.session.authenticate(request.auth_bytes)
    except Refused as refused:
        call.session.refuse()
        return SaslAuthenticateResponse(
            error_code=refused.code, error_message=refused.message, auth_bytes=b""
        )
    return SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms
    )
