"""Tokens that somebody else made: their spans as the reference gives them, and the state of a session that begins with
them."""

from __future__ import annotations

import numpy as np
import pytest
from families import family
from gpu_kit import FakeDevice, ReferenceEncoder

from gpu_worker.encoder import Encoding
from toksplice import SnapshotError, TokenizerError

TEXT = "  Hello, wörld!  世界\n\n\t<|im_end|> 12 🤷🏽‍♀️ x = [1]   \u00a0"
FAMILIES = ("qwen", "llama3", "o200k", "deepseek")


def encoding(name: str) -> Encoding:
    (found,) = ReferenceEncoder(family(name), FakeDevice()).encode([TEXT.encode()])
    assert isinstance(found, Encoding)
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_spans_are_the_reference_s(name: str) -> None:
    found = encoding(name)
    expected = family(name, engine=False).session(TEXT).offsets()
    assert np.array_equal(family(name).spans(TEXT.encode(), found.ids, found.starts), expected)
    # Tokens inside a character have its whole span, which tiles are not.
    ends = np.append(found.starts[1:], len(TEXT.encode()))
    assert not np.array_equal(np.stack([found.starts, ends], axis=1), expected)


def test_no_tokens_tile_no_text() -> None:
    none = np.zeros(0, np.uint32)
    assert family("qwen").spans(b"", none, none).shape == (0, 2)


@pytest.mark.parametrize(
    ("text", "ids", "starts"),
    [
        (b"ab", [1], [0, 1]),
        (b"ab", [1, 2], [0, 3]),
        (b"ab", [1, 2], [1, 1]),
        (b"abc", [1, 2, 3], [0, 2, 1]),
        (b"ab", [], []),
        (b"\xff\xfe", [1], [0]),
    ],
)
def test_what_does_not_tile_a_text_is_refused(text: bytes, ids: list[int], starts: list[int]) -> None:
    with pytest.raises(ValueError, match="tile"):
        family("qwen").spans(text, np.array(ids, np.uint32), np.array(starts, np.uint32))


def test_an_id_that_the_vocabulary_does_not_have_gets_its_span() -> None:
    spans = family("qwen").spans("aé".encode(), np.array([2**32 - 1, 5], np.uint32), np.array([0, 2], np.uint32))
    assert spans.tolist() == [[0, 3], [1, 3]]


def test_without_the_engine_there_are_no_spans() -> None:
    with pytest.raises(TokenizerError, match="native engine"):
        family("qwen", engine=False).spans(b"", np.zeros(0, np.uint32), np.zeros(0, np.uint32))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("add_special_tokens", [False, True])
def test_a_state_is_the_one_that_a_session_gives(name: str, add_special_tokens: bool) -> None:
    tokenizer = family(name)
    state = tokenizer.state_of(TEXT.encode(), encoding(name).ids, add_special_tokens=add_special_tokens)
    session = tokenizer.session(TEXT, add_special_tokens=add_special_tokens)
    assert state == session.to_bytes()
    assert tokenizer.restore(state).native


def test_a_state_with_wrong_ids_is_no_session() -> None:
    """Whoever restores it encodes the text, and compares."""
    ids = encoding("qwen").ids.copy()
    ids[3] += 1
    with pytest.raises(SnapshotError, match="other tokens"):
        family("qwen").restore(family("qwen").state_of(TEXT.encode(), ids))
