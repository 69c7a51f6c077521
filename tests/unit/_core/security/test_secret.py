from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from aioproducer._core.security.secret import Secret, redacted, revealed, without_frames
from tests.cases import for_each

SECRET = Secret("hunter2")


@for_each(
    "shown",
    [
        repr(SECRET),
        str(SECRET),
        f"{SECRET}",
        f"{SECRET:>20}",
        "%s" % SECRET,  # noqa: UP031 - one of the ways
        repr([SECRET]),
        repr({"a": SECRET}),
    ],
)
def test_secret_is_masked_in_every_format(shown: str) -> None:
    assert "hunter2" not in shown
    assert "***" in shown


def test_secret_is_no_string() -> None:
    given: Any = SECRET
    assert not isinstance(given, str)
    with pytest.raises(TypeError):
        given + ""
    with pytest.raises(AttributeError):
        given.encode()
    assert SECRET.reveal() == "hunter2"


def test_secrets_are_equal_by_value() -> None:
    assert Secret("hunter2") == SECRET
    assert hash(Secret("hunter2")) == hash(SECRET)
    assert Secret("hunter3") != SECRET
    assert Secret("\ud83d") == Secret("\ud83d")
    assert SECRET != "hunter2"
    assert (bool(SECRET), bool(Secret(""))) == (True, False)


@for_each("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_error_names_the_alternative(protocol: int) -> None:
    with pytest.raises(TypeError, match=r"cannot be pickled: pass .* the path of a file") as raised:
        pickle.dumps([SECRET], protocol)
    assert "hunter2" not in str(raised.value)


def test_copy_of_a_secret_is_the_secret() -> None:
    assert copy.copy(SECRET) is copy.deepcopy([SECRET])[0] is SECRET


def test_revealed_accepts_a_string_or_a_secret() -> None:
    assert revealed("a") == revealed(Secret("a")) == "a"


def test_redacted_masks_each_secret_in_a_text() -> None:
    assert redacted("bad hunter2hunter for u", SECRET, "hunter", "") == "bad ****** for u"


def test_without_frames_drops_suppressed_contexts() -> None:
    def decode() -> None:
        try:
            b"hunter2\xff".decode()
        except UnicodeDecodeError:
            raise ValueError("not text") from None

    with pytest.raises(ValueError, match="not text") as raised:
        decode()
    assert isinstance(raised.value.__context__, UnicodeDecodeError)
    without_frames(raised.value)
    assert raised.value.__context__ is None
