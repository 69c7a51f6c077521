from __future__ import annotations

from aioproducer.backoff import Backoff
from aioproducer.security.oauth_settings import AssertionSettings, EndpointSettings, UnsecuredSettings
from aioproducer.security.secret import Secret


def test_nothing_shows_a_secret() -> None:
    assertion = AssertionSettings(private_key_passphrase=Secret("hunter2"))
    endpoint = EndpointSettings(
        "https://a", Backoff(1, 2), client_secret=Secret("hunter2"), assertion=assertion
    )
    assert "hunter2" not in repr(endpoint)


def test_the_defaults_are_kafkas() -> None:
    endpoint, assertion = EndpointSettings("https://a", Backoff(1, 2)), AssertionSettings()
    assert (assertion.algorithm, assertion.lives_s, assertion.valid_before_s) == ("RS256", 300, 60)
    assert (endpoint.urlencode, endpoint.jwt_bearer) == (False, False)
    assert UnsecuredSettings().lives_s == 3600
