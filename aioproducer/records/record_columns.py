"""The records of one batch, kept as columns until the batch is encoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aioproducer.records.headers import HeaderColumns, RecordHeaders


class RecordColumns:
    """The parts of records, one list per part; no bytes are built here.

    Columns rather than one object per record: appending costs two list appends, the encoder works on whole
    columns at C speed, and a part that no record has costs nothing. The lists are public, and `values` and
    `timestamps` may be appended to directly as long as `keys` and `headers` are both None and the record has
    neither. All the lists there are have the same length.

    Everything in them is immutable (`bytes`, `str`, tuples): mutable buffers were copied before they got here.
    """

    __slots__ = ("headers", "keys", "timestamps", "values")

    values: list[bytes | None]
    keys: list[bytes | None] | None
    """None as long as no record has a key."""
    headers: list[RecordHeaders] | HeaderColumns | None
    """None as long as no record has headers; as columns as long as they came so, with the same names.

    The same tuple again and again is encoded only once.
    """
    timestamps: list[int]
    """Milliseconds since the epoch, of each record."""

    def __init__(self) -> None:
        self.values = []
        self.keys = None
        self.headers = None
        self.timestamps = []

    def __len__(self) -> int:
        return len(self.values)

    def append(
        self, value: bytes | None, key: bytes | None, headers: RecordHeaders, timestamp_ms: int
    ) -> None:
        """Add one record."""
        keys, of_each = self.keys, self.headers
        if keys is not None:
            keys.append(key)
        elif key is not None:
            self.keys = [None] * len(self.values)
            self.keys.append(key)
        if type(of_each) is list:
            of_each.append(headers)
        elif headers or of_each is not None:
            self._header_list().append(headers)
        self.values.append(value)
        self.timestamps.append(timestamp_ms)

    def extend(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[RecordHeaders] | None,
        timestamps: Sequence[int] | int,
    ) -> None:
        """Add a record per value; *timestamps* is a column too, or one time in ms for all of them.

        Raises: ValueError, and nothing is added, if the columns are not of equal length.
        """
        count = len(values)
        stamps = [timestamps] * count if isinstance(timestamps, int) else timestamps
        for column in (keys, headers, stamps):
            if column is not None and len(column) != count:
                raise ValueError(f"columns of {count} and {len(column)} records cannot be put together")
        if keys is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * len(self.values)
            self.keys.extend([None] * count if keys is None else keys)
        if headers is not None or self.headers is not None:
            self._extend_headers([()] * count if headers is None else headers)
        self.values.extend(values)
        self.timestamps.extend(stamps)

    def take(self, indices: Iterable[int]) -> RecordColumns:
        """Return the records at *indices*, in that order, as columns of their own."""
        chosen = list(indices)
        part = RecordColumns()
        part.values = [self.values[index] for index in chosen]
        part.keys = None if self.keys is None else [self.keys[index] for index in chosen]
        if isinstance(self.headers, HeaderColumns):
            part.headers = self.headers.part(lambda values: [values[index] for index in chosen], len(chosen))
        elif self.headers is not None:
            part.headers = [self.headers[index] for index in chosen]
        part.timestamps = [self.timestamps[index] for index in chosen]
        return part

    def _extend_headers(self, headers: Sequence[RecordHeaders]) -> None:
        if isinstance(headers, HeaderColumns):
            if not self.values:
                self.headers = headers.owned()
                return
            if isinstance(self.headers, HeaderColumns) and self.headers.extend(headers):
                return
        self._header_list().extend(headers)

    def _header_list(self) -> list[RecordHeaders]:
        """Make the headers a list, if they are not, to which those of any record may be added."""
        if self.headers is None:
            self.headers = [()] * len(self.values)
        elif isinstance(self.headers, HeaderColumns):
            self.headers = list(self.headers)
        return self.headers
