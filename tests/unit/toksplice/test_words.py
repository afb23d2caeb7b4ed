"""Words: cuts at white space, on small Unigram and WordPiece tokenizers built here."""

from __future__ import annotations

import base64
import functools
import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from families import added, sequence
from tokenizers.normalizers import Precompiled

from toksplice import Session, Tokenizer, load, pointsets, word_repair
from toksplice.added import AddedTokens
from toksplice.certificate import Certificate
from toksplice.charsmap import read_charsmap, write_charsmap
from toksplice.graphemes import apart_from_space, taking_the_next
from toksplice.pointsets import POINTS
from toksplice.repair import Edit
from toksplice.sections import SectionStarts
from toksplice.structure import NotUnderstoodError
from toksplice.words import Words, words

SENTENCE = "The quick brown fox jumps over a lazy dog, again. "
PROSE = SENTENCE * 40
#: Longer than what is looked at on one side of an edit at first, by more than half.
SIDE = SENTENCE * (word_repair.LOOK_CHARS * 3 // 2 // len(SENTENCE) + 1)

# What real maps do: white space becomes a space, controls vanish, accents compose, compatibility characters fall apart.
MAP = {
    **dict.fromkeys("\t\n\f\r\u00a0\u3000\u200d\u2028", " "),
    **dict.fromkeys("\x01\x0b\x1c\x7f", ""),
    "e\u0301": "é",
    "<\u0338": "≮",
    "\ufb01": "fi",
    "\u00a8": " \u0308",
    "\u0345": "ι",
    "\uff1c": "<",
}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
AT_WHITE_SPACE = sequence({"type": "WhitespaceSplit"}, METASPACE)
COLLAPSE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
Json = dict[str, Any]


def precompiled(replacements: dict[str, str] | None = None) -> Json:
    blob = write_charsmap(MAP if replacements is None else replacements)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}


def quotes(pattern: str) -> Json:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": '"'}


def normalizers(*steps: Json) -> Json:
    return {"type": "Sequence", "normalizers": list(steps)}


def bert_normalizer(**options: Any) -> Json:
    usual = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    return {"type": "BertNormalizer", **usual, **options}


T5 = precompiled()
XLNET = normalizers(quotes("``"), quotes("''"), {"type": "NFKD"}, {"type": "StripAccents"}, precompiled())
MASKS = (added("<mask>", lstrip=True), added("<s>"), added("</s>", rstrip=True))


def unigram(normalizer: Json | None, *tokens: Json, pre_tokenizer: Json = AT_WHITE_SPACE) -> Json:
    scored = [["<unk>", 0.0], ["▁", -2.0], *([char, -6.0] for char in "abcdefghijklmnopqrstuvwxyzTfé<>s.,'\"")]
    scored += [[word, -4.0] for word in ("▁the", "▁The", "▁a", "ck", "▁fo", "ver", "▁la", "zy", "ain", "aa", "▁b")]
    return _config(normalizer, pre_tokenizer, {"type": "Unigram", "unk_id": 0, "vocab": scored}, *tokens)


def wordpiece(normalizer: Json | None, *tokens: Json, longest: int = 12) -> Json:
    letters = "abcdefghijklmnopqrstuvwxyzTé.,<>'中"
    entries = ["[UNK]", *letters, *(f"##{char}" for char in letters), "the", "fox", "##ck", "##zy", "over"]
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": longest,
        "vocab": {word: i for i, word in enumerate(entries)},
    }
    return _config(normalizer, {"type": "BertPreTokenizer"}, model, *tokens)


def _config(normalizer: Json | None, pre_tokenizer: Json | None, model: Json, *tokens: Json) -> Json:
    first = len(model["vocab"])
    return {
        "version": "1.0",
        "added_tokens": [{"id": first + i, "special": True, **token} for i, token in enumerate(tokens)],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "model": model,
    }


CONFIGS: dict[str, Json] = {
    "t5": unigram(T5, added("<s>"), added("</s>")),
    "xlm-r": unigram(normalizers(precompiled(), COLLAPSE), *MASKS),
    "late": unigram(normalizers(precompiled(), COLLAPSE), added("<mask>", lstrip=True, normalized=True), added("<s>")),
    "xlnet": unigram(XLNET, added("<s>")),
    "nfkc": unigram(normalizers({"type": "NFKC"}, COLLAPSE, {"type": "Lowercase"}), *MASKS),
    "plain": unigram({"type": "NFD"}, *MASKS, pre_tokenizer=sequence({"type": "Whitespace"})),
    "uncased": wordpiece(bert_normalizer(), *MASKS, added("foo", single_word=True)),
    "cased": wordpiece(bert_normalizer(lowercase=False), added("[SEP]")),
}


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    return load(json.dumps(CONFIGS[name]).encode(), name=name)


def same_as_reference(session: Session, of: Tokenizer) -> bool:
    expected = of.reference.encode(session.text)
    spans = np.stack([expected.starts, expected.ends], axis=1)
    return np.array_equal(session.ids, expected.ids) and np.array_equal(session.offsets(), spans)


def route(of: Tokenizer) -> Words:
    assert isinstance(of.route, Words)
    return of.route


# --- the parts ---


def test_a_character_map_is_read_as_the_reference_reads_it() -> None:
    replacements = MAP | {"ab": "one", "abc": "two", "\U0001d7d8": "0", "中": "mid"}
    blob = write_charsmap(replacements)
    assert read_charsmap(base64.b64encode(blob).decode()) == replacements
    reference = Precompiled(blob)
    for key in ("\t", "\x01", "e\u0301", "<\u0338", "\ufb01", "\u00a8", "\U0001d7d8", "中"):
        assert reference.normalize_str(key) == replacements[key]


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda blob: blob[:3], "another form"),
        (lambda blob: b"\xff\xff\xff\x7f" + blob[4:], "another form"),
        (lambda blob: blob[: 4 + 1024], "another form|outside itself"),
        (
            lambda blob: blob[:4] + (0x41 << 10 | 0x41).to_bytes(4, "little") * 256 + blob[4 + 1024 :],
            "without an end|outside",
        ),
    ],
)
def test_damaged_character_maps_are_refused(damage: Any, what: str) -> None:
    blob = damage(write_charsmap({"a": "b"}))
    with pytest.raises(NotUnderstoodError, match=what):
        read_charsmap(base64.b64encode(blob).decode())


def test_a_map_that_is_no_base64_is_refused() -> None:
    with pytest.raises(NotUnderstoodError, match="base64"):
        read_charsmap("!")


def test_clusters_are_those_of_the_reference() -> None:
    apart = apart_from_space()
    assert all(apart[ord(char)] for char in "aé中가\u1100\u0600🇩😀")
    assert not any(apart[ord(char)] for char in "\u0301\u0345\u200d\u200c\u0903\u3099\ufe0f\U0001f3fd")
    assert taking_the_next(["a", "\u0600", " ", "\U000110bd", "\r"]) == ["\u0600", "\U000110bd"]


def test_probes_are_kept_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TOKSPLICE_HOME", str(tmp_path))
    asked = []

    def probe() -> pointsets.Bits:
        asked.append(1)
        bits = np.zeros((2, POINTS), dtype=np.bool_)
        bits[1, 0x10FFFF] = True
        return bits

    for _ in range(2):
        assert np.flatnonzero(pointsets.cached("a probe", probe)).tolist() == [POINTS + 0x10FFFF]
    assert len(asked) == 1
    next(tmp_path.rglob("*.npy")).write_bytes(b"damaged")
    assert pointsets.cached("a probe", probe).sum() == 1
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("name", "separators", "openers", "others"),
    [
        ("t5", " \t\n\f\r\u00a0\u3000", "a<e.中É가😀'", "\x0b\x1c\x01\u0301\u200d\u00a8\u0345\x7f"),
        ("xlnet", " \t\n\u00a0", "aéйÉ가", "`'\x01\u0301\u00a8\u200d\u0345"),
        ("nfkc", " \n\u00a0", "a中й", "\u1161\ufb01\u0301"),
        ("uncased", " \t\n\r\u00a0\u2028\u3000", "a中\u0301\x01\x1c", "\x0b\u0085"),
    ],
)
def test_characters_beside_a_cut(name: str, separators: str, openers: str, others: str) -> None:
    found = route(tokenizer(name))
    assert all(found.separators[ord(char)] for char in separators)
    assert all(found.openers[ord(char)] for char in openers)
    assert not any(found.separators[ord(char)] for char in openers + others)
    assert not any(found.openers[ord(char)] for char in separators + others)


def test_what_normalization_removes_is_no_separator() -> None:
    assert not any(route(tokenizer("uncased")).separators[ord(char)] for char in "\x0b\x0c\x1c\u0085\u200b")


SPLIT = {"type": "WhitespaceSplit"}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (unigram(T5, pre_tokenizer=sequence(SPLIT, METASPACE | {"prepend_scheme": "first"})), "first piece only"),
        (unigram(T5, pre_tokenizer=sequence(SPLIT, {"type": "UnicodeScripts"})), "UnicodeScripts"),
        (unigram({"type": "Strip", "strip_left": True, "strip_right": True}), "Strip"),
        (unigram(normalizers(bert_normalizer(), T5)), "BertNormalizer"),
        (unigram(normalizers(T5, T5)), "Precompiled"),
        (unigram(normalizers(T5, {"type": "StripAccents"})), "after Precompiled"),
        (unigram(quotes(" a")), "replaces"),
        (unigram({"type": "Replace", "pattern": {"Regex": "x+"}, "content": ""}), "replaces"),
        (unigram(COLLAPSE | {"content": "▁"}), "replaces"),
        (unigram(precompiled(MAP | {"\u0600": "x"})), "swallow"),
        (unigram(precompiled(MAP | {"a": "b"})), "letter a"),
        (unigram(T5, added("<a>"), added("<a><b>")), "overlap"),
        (unigram(T5, added("aba")), "overlap"),
        (unigram(T5, added("<s>", single_word=True)), "whole words"),
        (unigram(T5, added("a b", normalized=True)), "white space in it"),
        (unigram(T5, added("mask", normalized=True, lstrip=True)), "swallows"),
        (unigram(T5) | {"post_processor": {"type": "ByteLevel", "trim_offsets": True}}, "trims offsets"),
    ],
)
def test_what_is_not_understood_is_refused(config: Json, reason: str) -> None:
    with pytest.raises(NotUnderstoodError, match=reason):
        words(config)


def test_a_refused_tokenizer_says_why_and_stays_exact() -> None:
    config = unigram(T5, pre_tokenizer=sequence(SPLIT, METASPACE | {"prepend_scheme": "first"}))
    refused = load(json.dumps(config).encode())
    assert refused.explain().routes == ("D",)
    assert "first piece only" in refused.explain().reason
    session = refused.session(PROSE)
    assert session.append(" more").route == "D"
    assert same_as_reference(session, refused)


@pytest.mark.parametrize(
    ("text", "position", "steady"),
    [
        ("no token a", 9, None),
        ("\x01</s>x a", 8, True),
        ("</s>\x01 a", 6, False),
        ("</s>  \x01 a", 8, False),  # this token takes the white space after it along
        ("<s>  \x01 a", 7, True),
        ("</s>  a", 6, True),  # the section begins at the cut
        ("<s>\x01" + "x" * 9000 + " a", 9005, False),
        ("<s>" + "x" * 4092 + "<s>\x01" + "x" * 4090 + " a", 8190, False),  # a token across the stretches looked at
    ],
)
def test_sections(text: str, position: int, steady: bool | None) -> None:
    sections = route(tokenizer("xlm-r")).sections
    assert sections is not None
    assert sections.is_steady(text.encode(), position) is steady


def test_sections_without_added_tokens() -> None:
    every = np.ones(POINTS, dtype=np.bool_)
    assert SectionStarts([], every, ~every).is_steady(b"a b", 2) is None


# --- edits ---


def edit(of: Tokenizer, before: str, start: int, end: int, insert: str) -> tuple[str, str]:
    """Make an edit, positions in characters, and compare ids and spans with the reference: route and reason."""
    session = of.session(before)
    old = session.ids.copy()
    patch = session.splice(len(before[:start].encode()), len(before[:end].encode()), insert)
    assert session.text == before[:start] + insert + before[end:]
    assert same_as_reference(session, of), (before[:start], insert, before[end:])
    assert np.array_equal(patch.apply(old), session.ids)
    return patch.route, patch.reason


@pytest.mark.parametrize("name", CONFIGS)
def test_an_edit_costs_its_surroundings(name: str) -> None:
    of = tokenizer(name)
    session = of.session(PROSE * 4)
    half = session.length // 2
    changes = (
        (session.length, session.length, " and so on"),
        (half, half + 3, "xyz"),
        (3, 9, "slow"),
        (half, half, "é"),
    )
    for start, end, insert in changes:
        patch = session.splice(start, end, insert)
        assert (patch.route, patch.reason) == ("C", "words")
        assert patch.chars_encoded < 160
        assert len(patch.ids) < 40
        assert same_as_reference(session, of)


def test_a_certificate_counts_what_came_out_the_same() -> None:
    session = tokenizer("t5").session(PROSE)
    patch = session.splice(1000, 1000, "x")
    certificate = patch.certificate
    assert isinstance(certificate, Certificate)
    assert certificate.left_chars >= word_repair.OVERLAP_CHARS
    assert certificate.right_chars >= word_repair.OVERLAP_CHARS
    assert certificate.left_tokens > 4
    assert certificate.right_tokens > 4


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("left", "old", "new", "right"),
    [
        (" ", "\u200d", "\u200d\u0345", " x"),  # a cluster of six bytes is looked at character by character
        (" ", "a", "\u0345", " x"),
        ("a ", "\u0301", "b", " x"),
        ("a\u00a0", "b", "\u0301b", " x"),
        ("a\r", "b", "\n", "b x"),
        ("the", "\x0b", " ", "fox x"),
        ("the", " ", "\x0b", "fox x"),
        ("the", " ", "\u0085", "fox"),
        ("the", " ", "\x1c", "fox"),
        ("a '", "", "'", "' x"),
        ("a `", "b", "`", " '' x"),
        ("a\u0600", "b", " ", "b x"),  # a character that takes the next one into its cluster
        ("a <ma", "", "sk>", " x"),
        ("a ", "x", "<mask>", " x"),
        ("a  </s>", "x", "  ", " \u0301 x"),
        ("a</s> ", " ", "", "b x"),
        ("a <", "", "\u0338", "mask> x"),
        ("a ", "", "foo", " foox"),
        ("中文", "a", "中", "文 x"),
        ("a" * 11, "", "a", " x"),  # at the limit of characters a word
        ("a" * 12, "", "a", " x"),
        ("a ", "b", "\x01", "\x01 x"),
        ("a ", "b", "<s>", "\x01 x y z"),
    ],
)
def test_edits_that_break_looser_rules(name: str, left: str, old: str, new: str, right: str) -> None:
    of = tokenizer(name)
    for before, after in ((SIDE, " " + SIDE), (SIDE, ""), ("", " " + SIDE), ("the ", " fox")):
        start = len(before + left)
        edit(of, before + left + old + right + after, start, start + len(old), new)
        edit(of, before + left + old, start, start + len(old), new)


@pytest.mark.parametrize("drift", [1, 2, 3])
def test_spans_that_have_drifted_are_left_to_the_reference(drift: int) -> None:
    """Two characters too few, and every token stands where its neighbour should."""
    of = tokenizer("t5")
    text = "\x01" * drift + " a" * 200
    assert edit(of, text, 200, 200, "b") == ("D", "offsets_drift")
    assert edit(of, text, len(text), len(text), " b") == ("D", "offsets_drift")
    # An added token ends the section, and the next one counts anew.
    assert edit(of, text + "<s>" + PROSE, len(text) + 900, len(text) + 900, "b") == ("C", "words")
    assert edit(of, PROSE + "<s>" + text, 900, 900, "b") == ("C", "words")
    assert edit(of, PROSE + "<s>" + text, len(PROSE) + 50, len(PROSE) + 50, "b") == ("D", "offsets_drift")


def test_an_edit_that_makes_spans_drift() -> None:
    of = tokenizer("t5")
    text = PROSE + "<s>" + " a" * 200
    assert edit(of, text, len(PROSE) + 3, len(PROSE) + 3, "\x01\x01") == ("D", "offsets_drift")
    assert edit(of, "x" + " a" * 200, 0, 1, "\x01\x01") == ("D", "offsets_drift")
    # Nothing of the drifted section is kept when the edit ends the text.
    assert edit(of, PROSE + "<s>", len(PROSE) + 3, len(PROSE) + 3, "\x01\x01 a a")[0] == "C"


def test_without_white_space_the_text_is_encoded_in_full() -> None:
    assert edit(tokenizer("t5"), "a" * 5000, 5000, 5000, "b") == ("D", "window_is_whole_text")


def test_a_long_word_is_looked_past() -> None:
    text = PROSE + "a" * 3000 + " " + PROSE
    assert edit(tokenizer("uncased"), text, len(PROSE) + 2999, len(PROSE) + 2999, "b") == ("C", "words")


def test_cutting_off_behind_a_separator_encodes_only_what_is_compared() -> None:
    of = tokenizer("t5")
    session = of.session(PROSE)
    patch = session.truncate(1000)
    assert len(patch.ids) == 0
    assert patch.chars_encoded < 100
    assert session.append("The").reason == "words"
    assert same_as_reference(session, of)


def test_tokens_that_did_not_come_out_the_same_are_not_used() -> None:
    """The second line: an old token beside the edit is not what the reference gives."""
    of = tokenizer("t5")
    tokens = of.reference.encode(PROSE)
    text = bytearray(PROSE.encode())
    where = Edit(text, tokens, 1000, 1000, "x", 1)
    assert word_repair.repair_words(of.reference, route(of), where).reason == "words"
    for beside in (995, 1030):
        wrong = tokens.ids.copy()
        wrong[np.searchsorted(tokens.starts, beside) - 2] += 1
        attempt = word_repair.repair_words(of.reference, route(of), replace(where, tokens=replace(tokens, ids=wrong)))
        assert (attempt.repaired, attempt.reason) == (None, "uncertified")


PIECES = (
    *(" ", "  ", "\n", "\t", "\r\n", "\r", "\u00a0", "\u3000", "\u2028", "\x0b", "\x0c", "\u0085", "\x1c"),
    *("\u0301", "\u0308", "\u0345", "\u200d", "\u0903", "\u0600", "\u0600 ", " \u0301", "\u3099", "\u1161"),
    *("\x01", "\x01\x01", "\x7f", "\u00a8", "\ufb01", "\uff1c", "<\u0338", "\u0344", "中", "가", "\u1100", "é"),
    *("the", "fox", "a", "a", "b", "foo", "T", "aaaaaaaaaaa", "<mask>", "<s>", "</s>", "<ma", "sk>", "[SEP]"),
    *("''", "``", "'", "`", "s>", "."),
)


@pytest.mark.parametrize("name", CONFIGS)
def test_random_edits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the second line and with cuts as near as can be, so that nothing but the claims is tested."""
    monkeypatch.setattr(word_repair, "OVERLAP_CHARS", 0)
    monkeypatch.setattr(word_repair, "LOOK_CHARS", 4)
    rng, of = random.Random(name), tokenizer(name)
    reasons: Counter[str] = Counter()

    def text(parts: int) -> str:
        return "".join(rng.choice(PIECES) if rng.random() < 0.5 else f" {rng.choice('ab')}" for _ in range(parts))

    for _ in range(40):
        session = of.session(text(rng.randrange(1, 40)))
        for _ in range(25):
            now = session.text
            start = rng.choice((len(now), rng.randint(0, len(now))))
            end = min(len(now), start + rng.choice((0, 0, 1, 2, 9)))
            insert = text(rng.randrange(5)) if len(now) < 150 else ""
            patch = session.splice(len(now[:start].encode()), len(now[:end].encode()), insert)
            reasons[patch.reason] += 1
            assert same_as_reference(session, of), (now, start, end, insert)
    assert reasons["words"] > 0.4 * reasons.total(), reasons


@pytest.mark.parametrize(
    ("name", "loosened"),
    [
        ("t5", {"openers": np.ones(POINTS, dtype=np.bool_)}),
        ("t5", {"sections": None}),
        ("uncased", {"added": AddedTokens([])}),
        ("late", {"firm": None}),
    ],
)
def test_the_random_edits_find_a_looser_rule(name: str, loosened: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    of = load(json.dumps(CONFIGS[name]).encode(), name=name)
    looser = replace(route(of), **loosened)
    monkeypatch.setattr(type(of), "route", looser)
    monkeypatch.setattr(f"{__name__}.tokenizer", lambda _: of)
    with pytest.raises(AssertionError):
        test_random_edits(name, monkeypatch)


def is_steady(found: Words, data: bytes, at: int) -> bool:
    if found.sections is None:
        return True
    steady = found.sections.is_steady(data, at)
    return found.sections.begins_steadily(data, 0) if steady is None else steady


def test_the_reference_splits_as_the_claims_say() -> None:
    """E(T) is E(T[:c]) and E(T[c:]) at every cut of random texts: ids always, spans in steady sections."""
    rng = random.Random(5)
    checked: Counter[bool] = Counter()
    for name in CONFIGS:
        of, found = tokenizer(name), route(tokenizer(name))
        for _ in range(300):
            text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(2, 25)))
            whole = of.reference.encode(text)
            for cut in range(1, len(text) - 1):
                pair = found.separators[ord(text[cut - 1])] and found.openers[ord(text[cut])]
                firm = found.firm is None or all(found.firm[ord(char)] for char in text[cut : cut + 2])
                if not pair or not firm or found.added.touch(text, cut):
                    continue
                at = len(text[:cut].encode())
                left, right = of.reference.encode(text[:cut]), of.reference.encode(text[cut:])
                assert np.array_equal(whole.ids, np.concatenate([left.ids, right.ids])), (name, text, cut)
                steady = is_steady(found, text.encode(), at)
                checked[steady] += 1
                if steady:
                    assert np.array_equal(whole.starts, np.concatenate([left.starts, right.starts + at])), (name, text)
                    assert np.array_equal(whole.ends, np.concatenate([left.ends, right.ends + at])), (name, text)
                    assert np.searchsorted(whole.starts, at) == len(left)
    assert checked[True] > 2000
    assert checked[False] > 20
