from __future__ import annotations

from aioproducer.errors import InvalidRecord, NotLeaderOrFollower
from aioproducer.testing.refusal import Refused


def test_what_is_refused_without_a_word_is_told_by_the_name_of_the_error() -> None:
    refused = Refused(NotLeaderOrFollower)
    assert (refused.code, refused.message, refused.record_errors) == (6, "NotLeaderOrFollower", {})


def test_who_refuses_may_say_why_and_which_records_are_to_blame() -> None:
    refused = Refused(InvalidRecord, "no key", record_errors={3: "it has none"})
    assert (refused.code, refused.message, str(refused)) == (87, "no key", "no key")
    assert refused.record_errors == {3: "it has none"}
