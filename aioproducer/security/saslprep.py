"""SASLprep (RFC 4013): user names and passwords that look the same become the same."""

from __future__ import annotations

import stringprep
from unicodedata import ucd_3_2_0

from aioproducer.security.mechanism import Refused

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str, what: str) -> str:
    """Return *text* prepared as a stored string; *what* is what to call it if it cannot be.

    Raises: Refused. Its text does not have *text* in it.
    """
    if text.isascii() and text.isprintable():
        return text  # as nearly always: nothing of it is mapped
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    for prohibited in _PROHIBITED:
        if any(map(prohibited, prepared)):
            raise Refused(
                f"{what} has a character that SASLprep (RFC 4013) forbids, such as a control character"
            )
    if any(map(stringprep.in_table_a1, prepared)):
        raise Refused(
            f"{what} has a character that SASLprep (RFC 4013) does not know: it is newer than Unicode 3.2"
        )
    if any(map(stringprep.in_table_d1, prepared)):
        both_ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not both_ends or any(map(stringprep.in_table_d2, prepared)):
            raise Refused(f"{what} mixes writing directions in a way that SASLprep (RFC 4013) forbids")
    return prepared
