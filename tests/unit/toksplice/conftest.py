"""Tokenizers for the library's tests of routes C and D: without the native engine."""

from __future__ import annotations

import pytest
from families import family

from toksplice import Tokenizer


@pytest.fixture
def gpt2() -> Tokenizer:
    return family("gpt2", engine=False)


@pytest.fixture
def qwen() -> Tokenizer:
    return family("qwen", engine=False)
