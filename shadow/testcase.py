"""A failing case as a test that somebody can paste and run."""

from __future__ import annotations

from pathlib import Path

from schemas.sample import Sample
from shadow.reproduce import Case

_SHORT_ID = 8


def pytest_case(case: Case, sample: Sample, tokenizer_json: Path) -> str:
    """Python source of a test that fails while the fault is there. It holds the text of the case."""
    first, *others = case.settled().steps
    special = case.add_special_tokens
    name = _plain(sample.tokenizer or "without a name")
    engine, version = _plain(sample.engine or "?"), _plain(sample.engine_version or "?")
    lines = [
        f'"""Sample {_plain(sample.sample_id)} of tokenizer {name}, made small by `toksplice shadow replay`.',
        "",
        f"Fingerprint {_plain(sample.fingerprint)}; answered by {_plain(sample.worker)}",
        f"on path {sample.path}, route {sample.route}, engine {engine} {version}.",
        '"""',
        "",
        "import toksplice",
        "",
        f"TOKENIZER = {str(tokenizer_json)!a}",
        "",
        "",
        f"def test_sample_{_identifier(sample.sample_id)}() -> None:",
        "    tokenizer = toksplice.load(TOKENIZER)",
        "    reference = toksplice.load(TOKENIZER, engine=False)",
        f"    session = tokenizer.session({first.text!a}, add_special_tokens={special})",
        "    ids = session.ids",
    ]
    for step in others:
        call = f"update({step.text!a})" if step.whole else f"splice({step.start}, {step.end}, {step.text!a})"
        lines.append(f"    ids = session.{call}.apply(ids)")
    lines += [
        f"    right = reference.session(session.text, add_special_tokens={special})",
        "    assert ids.tolist() == right.ids.tolist()",
        "    assert session.offsets().tolist() == right.offsets().tolist()",
        "",
    ]
    return "\n".join(lines)


def _plain(word: str) -> str:
    """A word of the record as it may stand in the docstring: whoever wrote it writes no code."""
    return "".join(
        letter if letter.isascii() and letter.isprintable() and letter not in '"\\' else "?" for letter in word
    )


def _identifier(sample_id: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in sample_id[:_SHORT_ID])
