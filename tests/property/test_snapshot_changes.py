"""The derived attributes of a snapshot equal those computed from all topics, after any response."""

from __future__ import annotations

from hypothesis import given, strategies as st

from aioproducer._core.metadata.snapshot import NO_LEADER, LeaderHint, MetadataSnapshot
from aioproducer._core.protocol.metadata import MetadataResponseTopic
from tests.unit._core.metadata.answers import AN_ID, ANOTHER_ID, after, topic

NAMES = st.sampled_from(["a", "b", "c", "d"])
NODES = st.sampled_from([1, 2, 3])
LEADERS = st.lists(st.tuples(st.sampled_from([NO_LEADER, 1, 2, 3, 4]), st.integers(-1, 3)), max_size=3)


@st.composite
def successor(draw: st.DrawFn, known: MetadataSnapshot) -> MetadataSnapshot:
    """Return *known* updated by a response, by leader hints, or by doubts."""
    kind = draw(st.sampled_from(["answer", "answer", "hints", "doubts"]))
    if kind == "hints":
        partition, epoch = st.integers(0, 2), st.integers(0, 4)
        hints = draw(st.lists(st.builds(LeaderHint, NAMES, partition, st.integers(1, 4), epoch), max_size=3))
        return known.with_leader_hints(hints, ())
    if kind == "doubts":
        return known.with_stale_leaders(
            draw(NAMES), draw(st.lists(st.integers(0, 3), max_size=2)), draw(NODES)
        )
    told: list[MetadataResponseTopic] = [
        topic(name, *draw(LEADERS), topic_id=draw(st.sampled_from([AN_ID, ANOTHER_ID])))
        for name in draw(st.lists(NAMES, unique=True))
    ]
    return after(
        known,
        *told,
        asked=draw(st.lists(NAMES, unique=True)),
        complete=draw(st.booleans()),
        nodes=draw(st.lists(NODES, min_size=1, unique=True)),
    )


@given(st.data())
def test_snapshot_tracks_changes_and_leaderless_partitions(
    data: st.DataObject,
) -> None:
    known = MetadataSnapshot()
    for _ in range(data.draw(st.integers(1, 6))):
        before, known = known, data.draw(successor(known))
        assert known.leaderless == {name for name, info in known.topics.items() if info.leaderless}
        if known.version != before.version:
            names = before.topics.keys() | known.topics.keys()
            assert known.changed == {
                name for name in names if before.topics.get(name) is not known.topics.get(name)
            }
        else:  # the same but for what is doubted
            assert {name: info.leaders for name, info in known.topics.items()} == {
                name: info.leaders for name, info in before.topics.items()
            }
