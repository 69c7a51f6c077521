"""`aioproducer perf`: send many records, and tell how fast they were acknowledged."""
