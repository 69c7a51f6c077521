from __future__ import annotations

from aioproducer.records import layout
from aioproducer.records.sizes import BATCH_OVERHEAD


def test_the_header_has_its_fields_where_kafka_looks_for_them() -> None:
    header = layout.HEADER.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert len(header) == BATCH_OVERHEAD
    places = {0: 1, 8: 2, 12: 3, 16: 4, 17: 5, 21: 6, 23: 7, 27: 8, 35: 9, 43: 10, 51: 11, 53: 12, 57: 13}
    stops = [*list(places)[1:], BATCH_OVERHEAD]
    assert [int.from_bytes(header[at:stop]) for at, stop in zip(places, stops, strict=True)] == list(
        places.values()
    )


def test_the_parts_that_are_written_alone_lie_within_the_header() -> None:
    header = layout.HEADER.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert layout.LENGTH.unpack_from(header, layout.LENGTH_AT) == (2,)
    assert layout.CRC.unpack_from(header, layout.CRC_AT) == (5,)
    assert layout.IDENTITY.unpack_from(header, layout.IDENTITY_AT) == (10, 11, 12)
    assert layout.LENGTH_AT + layout.LENGTH.size == layout.LENGTH_PREFIX
    assert layout.CRC_AT + layout.CRC.size == layout.CHECKED_FROM
