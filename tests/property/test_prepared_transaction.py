"""A prepared transaction is restored from its text, with any field values."""

from __future__ import annotations

import pickle

from hypothesis import given, strategies as st

from aioproducer import PreparedTransaction

prepared = st.builds(
    PreparedTransaction,
    transactional_id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    producer_id=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**15 - 1),
    transaction_version=st.integers(1, 2),
    began_at_ms=st.integers(0, 2**42),
    timeout_ms=st.integers(-1, 2**31 - 1),
)


@given(prepared)
def test_prepared_transaction_is_parsed_from_its_one_line_text(one: PreparedTransaction) -> None:
    assert PreparedTransaction.parse(str(one)) == one
    assert len(str(one).splitlines()) == 1
    assert pickle.loads(pickle.dumps(one)) == one
    assert len({one, PreparedTransaction.parse(str(one))}) == 1
