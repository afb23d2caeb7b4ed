"""The pipeline inside a program: what `cli.embedded` gives, and the example that uses it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.embedded import embedded
from toksplice.errors import UnknownTokenizerError
from toksplice.registry import Registry

ROOT = Path(__file__).resolve().parents[3]


async def test_sessions_and_one_offs_are_answered(registry: Registry) -> None:
    async with embedded(["gpt2"], registry) as client:
        session = client.session("s", "gpt2")
        await session.append("Once upon")
        await session.append(" a time")
        assert session.ids.tolist() == [7454, 2402, 257, 640]
        assert (await client.encode("Hello world", "gpt2")).ids.tolist() == [15496, 995]


async def test_nothing_need_be_registered_for_the_built_in_tokenizer(home: Path, tmp_path: Path) -> None:
    async with embedded(registry=tmp_path / "own", state=tmp_path / "state") as client:
        assert (await client.encode("Hello", "gpt2")).total == 1
    assert (tmp_path / "own" / "names.json").exists()
    assert list((tmp_path / "state").iterdir())
    assert not (home / "tokenizers").exists()


async def test_an_exception_of_the_block_comes_out_as_it_is(registry: Registry) -> None:
    with pytest.raises(ZeroDivisionError):
        async with embedded():
            raise ZeroDivisionError


async def test_a_tokenizer_that_is_not_there_is_named_before_anything_starts(registry: Registry) -> None:
    with pytest.raises(UnknownTokenizerError, match="toksplice tokenizers fetch qwen3"):
        async with embedded(["qwen3"]):
            raise AssertionError
    with pytest.raises(TypeError):
        async with embedded("gpt2"):
            raise AssertionError


def test_the_example_runs(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "python" / "embedded.py"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "forked: 'Twice upon a time, there was a tokenizer. The end.' -> [" in done.stdout
    assert done.stdout.count("\n") == 4
