"""What the command's tests share: a home of their own with GPT-2 registered, and a way to run a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Command, Done

from cli.main import main
from toksplice.ranks import gpt2_tokenizer_json
from toksplice.registry import Registry


@pytest.fixture(scope="session")
def gpt2_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpt2") / "tokenizer.json"
    path.write_bytes(gpt2_tokenizer_json())
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of the user's own is read or written."""
    folder = tmp_path / "home"
    monkeypatch.setenv("TOKSPLICE_HOME", str(folder))
    monkeypatch.delenv("TOKSPLICE_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return folder


@pytest.fixture
def registry(home: Path, gpt2_file: Path) -> Registry:
    """The home's registry, with gpt2."""
    registry = Registry(home / "tokenizers")
    registry.add("gpt2", gpt2_file)
    return registry


@pytest.fixture
def command(home: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process: `command("verify", "--cases", 40)`."""

    def run(*words: object) -> Done:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Done(int(code), out, err)

    return run
