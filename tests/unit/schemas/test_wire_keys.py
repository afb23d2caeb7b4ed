"""Keys, partitions, topics and headers."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from schemas import headers, topics
from schemas.limits import Limits
from schemas.state import SessionRecord, directory_key

# From Kafka's own UtilsTest.testMurmur2, which has them as signed integers.
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("data", "signed"), KAFKA_VECTORS.items())
def test_murmur2_is_kafkas(data: bytes, signed: int) -> None:
    assert topics.murmur2(data) == signed % 2**32


@given(st.binary(max_size=300))
def test_murmur2_is_aiokafkas(data: bytes) -> None:
    assert topics.murmur2(data) == aiokafka_murmur2(data) % 2**32


@given(st.binary(min_size=1, max_size=100), st.integers(1, 100))
def test_partition_is_that_of_kafkas_default_partitioner(key: bytes, partitions: int) -> None:
    every = list(range(partitions))
    assert topics.partition_for(key, partitions) == DefaultPartitioner()(key, every, every)


def test_there_is_no_partition_among_none() -> None:
    with pytest.raises(ValueError, match="at least one"):
        topics.partition_for(b"k", 0)


def test_session_and_directory_keys() -> None:
    assert topics.session_key("acme", "é") == b"acme\0\xc3\xa9"
    assert topics.session_key("", "") == b"\0"
    assert directory_key("acme", "s", "f", True) == b"acme\0s\0f\0001"
    assert directory_key("acme", "s", "f", False) == b"acme\0s\0f\0000"
    record = SessionRecord(tenant="a", session_id="s", fingerprint="f", epoch=1, worker="w")
    assert record.key == directory_key("a", "s", "f", False)


def test_topics_are_distinct_and_share_one_prefix() -> None:
    assert len(set(topics.ALL)) == len(topics.ALL) == 11
    assert all(name.startswith("tokenize.") for name in topics.ALL)
    assert set(topics.ALL) >= topics.COMPACTED


def test_the_last_header_of_a_name_counts() -> None:
    pairs = (("a", b"1"), ("b", b"2"), ("a", b"3"))
    assert headers.find(pairs, "a") == b"3"
    assert headers.find(pairs, "c") is None
    assert headers.with_header(pairs, "a", b"4") == (("b", b"2"), ("a", b"4"))


@pytest.mark.parametrize(
    ("value", "partition"),
    [
        (b"0", 0),
        (b"11", 11),
        (b"007", 7),
        (b"12", None),
        (b"-1", None),
        (b"+1", None),
        (b" 1", None),
        (b"1_0", None),
        (b"", None),
        ("٣".encode(), None),
        (b"9" * 5000, None),
    ],
)
def test_reply_partition(value: bytes, partition: int | None) -> None:
    assert headers.reply_partition(((headers.REPLY_PARTITION, value),), 12) == partition
    assert headers.reply_partition((), 12) is None


def test_correlation_id_is_bounded() -> None:
    def read(value: bytes) -> bytes | None:
        return headers.correlation_id(((headers.CORRELATION_ID, value),), Limits(request_id_bytes=4))

    assert [read(value) for value in (b"\xff", b"1234", b"12345", b"")] == [b"\xff", b"1234", None, None]
    assert headers.correlation_id(()) is None


def test_trace_context_takes_only_ascii() -> None:
    pairs = (("traceparent", b"00-ab-cd-01"), ("tracestate", b"\xff"), ("other", b"x"))
    assert headers.trace_context(pairs) == {"traceparent": "00-ab-cd-01"}
