"""The registry: names, fingerprints, files on disk, several threads and processes, and what may go wrong."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from toksplice import registry as module
from toksplice.errors import TokenizerError, UnknownTokenizerError
from toksplice.fingerprint import fingerprint
from toksplice.registry import Registry


def tiny(letter: str = "a") -> bytes:
    """A tokenizer.json of two tokens; each letter makes another fingerprint."""
    config = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {letter: 0, "zz": 1}, "merges": []},
    }
    return json.dumps(config).encode()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def add(registry: Registry, tmp_path: Path, name: str, letter: str = "a") -> str:
    path = tmp_path / f"{letter}.json"
    path.write_bytes(tiny(letter))
    return registry.add(name, path).fingerprint


def test_an_empty_registry_needs_no_folder(registry: Registry) -> None:
    assert registry.names() == ()
    assert registry.name_of("0" * 64) == ""
    assert not registry.folder.exists()
    with pytest.raises(UnknownTokenizerError, match="registered: none") as caught:
        registry.resolve("qwen3")
    assert caught.value.code == "unknown_tokenizer"


def test_a_tokenizer_is_found_by_name_and_by_fingerprint(registry: Registry, tmp_path: Path) -> None:
    found = add(registry, tmp_path, "one")
    assert found == fingerprint(tiny())
    assert registry.names() == ("one",)
    assert registry.resolve("one") == registry.resolve(found) == found
    assert registry.name_of(found) == "one"
    assert registry.path("one").read_bytes() == tiny()
    tokenizer = registry.get(found)
    assert tokenizer.fingerprint == found
    assert tokenizer.name == "one"
    assert registry.get(found) is tokenizer


def test_another_registry_on_the_folder_sees_it_at_once(registry: Registry, tmp_path: Path) -> None:
    other = Registry(registry.folder)
    assert other.names() == ()
    found = add(registry, tmp_path, "one")
    assert other.resolve("one") == found
    add(registry, tmp_path, "two", "b")
    assert other.names() == ("one", "two")


def test_a_name_can_move_and_the_old_fingerprint_is_then_unknown(registry: Registry, tmp_path: Path) -> None:
    old = add(registry, tmp_path, "name", "a")
    new = add(registry, tmp_path, "name", "b")
    assert old != new
    assert registry.resolve("name") == new
    with pytest.raises(UnknownTokenizerError):
        registry.resolve(old)


def test_the_least_recently_used_tokenizer_is_let_go(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry", max_loaded=2)
    a, b, c = (add(registry, tmp_path, letter, letter) for letter in "abc")
    first, second = registry.get(a), registry.get(b)
    assert registry.get(a) is first
    registry.get(c)
    assert registry.get(a) is first
    assert registry.get(b) is not second


def test_threads_that_want_the_same_tokenizer_load_it_once(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = add(registry, tmp_path, "one")
    loads: list[Any] = []
    everyone = threading.Barrier(4)
    original = Registry._load

    def counted(self: Registry, entry: module.Entry) -> Any:
        loads.append(entry)
        return original(self, entry)

    monkeypatch.setattr(Registry, "_load", counted)

    def get(_: int) -> Any:
        everyone.wait(timeout=30)
        return registry.get(found)

    with ThreadPoolExecutor(4) as pool:
        tokenizers = list(pool.map(get, range(4)))
    assert len(loads) == 1
    assert all(tokenizer is tokenizers[0] for tokenizer in tokenizers)


def test_many_writers_lose_nothing(registry: Registry, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(tiny())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Registry(registry.folder).add(f"name-{n}", path), range(24)))
    assert len(registry.names()) == 24
    assert [file.name for file in registry.folder.iterdir() if file.name.startswith(".new")] == []


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../up", "x" * 64, "f" * 64, "é", ".hidden"])
def test_unusable_names_are_refused(registry: Registry, tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(tiny())
    with pytest.raises(TokenizerError, match="cannot be a tokenizer's name"):
        registry.add(name, path)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"model": ', b"\xff\xfe"])
def test_what_is_no_tokenizer_is_refused_and_leaves_nothing(registry: Registry, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(TokenizerError):
        registry.add("bad", path)
    assert registry.names() == ()


def test_a_missing_file_is_named(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"gone\.json"):
        registry.add("gone", tmp_path / "gone.json")


def test_a_file_over_the_limit_is_refused(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10)
    with pytest.raises(TokenizerError, match="larger than 10 bytes"):
        add(registry, tmp_path, "large")


def test_the_number_of_names_is_bounded(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 1)
    add(registry, tmp_path, "one")
    add(registry, tmp_path, "one", "b")  # a name that exists may still move
    with pytest.raises(TokenizerError, match="1 names already"):
        add(registry, tmp_path, "two")


def test_a_file_that_was_altered_is_not_loaded(registry: Registry, tmp_path: Path) -> None:
    found = add(registry, tmp_path, "one")
    registry.path("one").write_bytes(tiny("b"))
    with pytest.raises(TokenizerError, match="was altered"):
        registry.get(found)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"format": 1}', b'{"format": 2, "names": {}}', b'{"format": 1, "names": {"a": {}}}']
)
def test_a_damaged_names_file_is_one_clear_error(registry: Registry, tmp_path: Path, content: bytes) -> None:
    add(registry, tmp_path, "one")
    (registry.folder / "names.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"names\.json"):
        registry.names()


def test_fingerprints_are_computed_anew_for_another_library(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = add(registry, tmp_path, "one")
    monkeypatch.setattr(module, "_library", lambda: "9.9.9")
    monkeypatch.setattr(module, "fingerprint", lambda data: "ab" * 32)
    upgraded = Registry(registry.folder)
    assert upgraded.resolve("one") == "ab" * 32
    assert upgraded.entry("one").library == "9.9.9"
    with pytest.raises(UnknownTokenizerError):
        upgraded.resolve(old)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TokenizerError, match="cannot be written"):
        add(Registry(tmp_path / "file" / "registry"), tmp_path, "one")


def test_at_least_one_tokenizer_is_held(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Registry(tmp_path, max_loaded=0)
