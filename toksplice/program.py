"""What the native engine is told of a tokenizer: a tokenizer.json, read by its structure.

Two kinds of BPE tokenizers are understood: byte-level ones, whose text is split by patterns, and those without a
pre-tokenizer, whose symbols are characters with a fallback to bytes. Whatever is not certainly understood is refused
with a reason, and the tokenizer is served by the other routes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from toksplice.automaton import Automaton, build, over_bytes
from toksplice.charclass import normal_form
from toksplice.pattern import UnsupportedPatternError, parse
from toksplice.plan import BYTE_LEVEL_PATTERN, COMPATIBILITY_FORMS, NORMAL_FORMS, split_level
from toksplice.structure import NotUnderstoodError, steps
from toksplice.sync import Level

#: U+2581, which stands for a space in vocabularies of characters.
MARK = "\u2581"

_POST_PROCESSORS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
#: Bytes that no UTF-8 text holds.
_NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


@dataclass(frozen=True, slots=True)
class AddedToken:
    """An added token. `content` is what is looked for: normalized already if `normalized`, which means that it is
    matched in a second search, after normalization. `lstrip`, `rstrip`: it swallows the white space beside it."""

    content: str
    id: int
    normalized: bool
    lstrip: bool
    rstrip: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A tokenizer as the engine sees it.

    `kind`: "bytes" (byte-level BPE behind split `levels`) or "characters" (BPE on whole sections; no levels).
    `normal_form`: NFC, NFD, NFKC, NFKD or None. `added`: in the order of the file. `trim_offsets`: spans leave out
    the white space at the ends of their token.

    For characters: `mark_spaces`: each space is U+2581. `prepend`: whether a section gets that mark in front: "never",
    "first" (the section at the very start of the text) or "always". `first_if_absent`: only if it does not begin with
    the mark already.
    """

    kind: Literal["bytes", "characters"]
    levels: tuple[Automaton, ...]
    normal_form: str | None
    added: tuple[AddedToken, ...]
    trim_offsets: bool
    mark_spaces: bool
    prepend: Literal["never", "first", "always"]
    first_if_absent: bool


def program(config: Mapping[str, Any]) -> Program:
    """Read a tokenizer.json; raises `NotUnderstoodError` with the first thing that is not understood."""
    model = config["model"]
    _check_model(model)
    splitters = steps(config.get("pre_tokenizer"), "pretokenizers")
    try:
        if any(step["type"] == "ByteLevel" for step in splitters):
            return _bytes_program(config, model, splitters)
        return _characters_program(config, model, splitters)
    except UnsupportedPatternError as error:
        raise NotUnderstoodError(f"split pattern with {error}") from error


def _bytes_program(
    config: Mapping[str, Any], model: Mapping[str, Any], splitters: Sequence[Mapping[str, Any]]
) -> Program:
    if model.get("byte_fallback"):
        raise NotUnderstoodError("byte_fallback behind ByteLevel")
    form = _normal_form(config)
    trims = _trims_offsets(config)
    if trims and form in COMPATIBILITY_FORMS:
        # A character that falls apart into a space and more gets spans that run backwards.
        raise NotUnderstoodError(f"{form} with a post-processor that trims offsets")
    added = _added_tokens(config, model, form)
    _refuse_overlaps(added)
    return Program(
        kind="bytes",
        levels=tuple(_levels(splitters)),
        normal_form=form,
        added=added,
        trim_offsets=trims,
        mark_spaces=False,
        prepend="never",
        first_if_absent=False,
    )


def _characters_program(
    config: Mapping[str, Any], model: Mapping[str, Any], splitters: Sequence[Mapping[str, Any]]
) -> Program:
    marks, prepends = _mark_normalizer(config)
    scheme: Literal["never", "first", "always"] = "always" if prepends else "never"
    first_if_absent = False
    metaspaces = 0
    for step in splitters:
        if step["type"] == "Metaspace":
            metaspaces += 1
            scheme, marks, first_if_absent = _metaspace_scheme(step), True, True
        elif not (marks and _splits_at_a_space(step)):
            raise NotUnderstoodError(f"pre-tokenizer {step['type']} without ByteLevel")
    if metaspaces + prepends > 1:
        raise NotUnderstoodError("more than one step that puts a mark in front")
    _check_byte_fallback(model, marks=marks)
    if _trims_offsets(config):
        raise NotUnderstoodError("a model of characters with a post-processor that trims offsets")
    added = _added_tokens(config, model, None)
    _refuse_overlaps(added)
    for token in added:
        if token.lstrip or (token.rstrip and token.normalized):
            raise NotUnderstoodError(f"added token {token.content!r} strips white space")
        if token.normalized and (prepends or " " in token.content or MARK in token.content):
            raise NotUnderstoodError(f"added token {token.content!r} is matched after normalization")
    return Program(
        kind="characters",
        levels=(),
        normal_form=None,
        added=added,
        trim_offsets=False,
        mark_spaces=marks,
        prepend=scheme,
        first_if_absent=first_if_absent,
    )


# The model


def _check_model(model: Mapping[str, Any]) -> None:
    # Old files leave the type out; only a BPE model has merges.
    kind = model.get("type")
    if kind is None and "merges" not in model:
        raise NotUnderstoodError("a model without merges")
    if kind not in (None, "BPE"):
        raise NotUnderstoodError(f"a model of type {kind}")
    if model.get("dropout"):
        raise NotUnderstoodError("BPE with dropout")
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(affix):
            raise NotUnderstoodError(f"BPE with {affix}")


def _check_byte_fallback(model: Mapping[str, Any], *, marks: bool) -> None:
    vocabulary = model["vocab"]
    if not model.get("byte_fallback"):
        raise NotUnderstoodError("BPE without ByteLevel and without byte_fallback")
    if model.get("ignore_merges"):
        raise NotUnderstoodError("ignore_merges without a pre-tokenizer")
    if marks and MARK not in vocabulary:
        raise NotUnderstoodError("the vocabulary has no U+2581, which stands for the space")
    for byte in set(range(256)) - _NEVER_IN_UTF8:
        never_needed = byte < 0x80 and (chr(byte) in vocabulary or (marks and byte == 0x20))
        if not never_needed and f"<0x{byte:02X}>" not in vocabulary:
            raise NotUnderstoodError(f"the vocabulary has no <0x{byte:02X}>")
    for side in _merge_sides(model["merges"]):
        if side.startswith("<0x") and _BYTE_TOKEN.fullmatch(side):
            raise NotUnderstoodError(f"a merge of {side}")


def _merge_sides(merges: Sequence[Any]) -> Iterator[str]:
    for merge in merges:
        yield from merge.split(" ", 1) if isinstance(merge, str) else merge


# Normalizer and pre-tokenizer


def _normal_form(config: Mapping[str, Any]) -> str | None:
    normalizers = steps(config.get("normalizer"), "normalizers")
    if not normalizers:
        return None
    names = " + ".join(step["type"] for step in normalizers)
    if names not in NORMAL_FORMS:
        raise NotUnderstoodError(f"normalizer {names} before ByteLevel")
    return names


def _mark_normalizer(config: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether the normalizer makes every space a mark, and whether it puts one in front of each section."""
    marks = prepends = False
    for step in steps(config.get("normalizer"), "normalizers"):
        if step["type"] == "Replace" and step["pattern"] == {"String": " "} and step["content"] == MARK and not marks:
            marks = True
        elif step["type"] == "Prepend" and step["prepend"] == MARK and not prepends:
            prepends = True
        else:
            raise NotUnderstoodError(f"normalizer {step['type']} without ByteLevel")
    return marks, prepends


def _metaspace_scheme(step: Mapping[str, Any]) -> Literal["never", "first", "always"]:
    if step["replacement"] != MARK:
        raise NotUnderstoodError("Metaspace with another mark than U+2581")
    if step.get("split", True):
        raise NotUnderstoodError("Metaspace that splits")
    scheme: Literal["never", "first", "always"] = step.get("prepend_scheme", "always")
    return scheme


def _splits_at_a_space(step: Mapping[str, Any]) -> bool:
    """A split that finds nothing, because every space is a mark by then."""
    pattern: Mapping[str, str] = step["pattern"] if step["type"] == "Split" else {}
    return " " in pattern.get("String", "")


def _levels(splitters: Sequence[Mapping[str, Any]]) -> Iterator[Automaton]:
    behind_bytes = False
    found = 0
    for step in splitters:
        if step["type"] == "ByteLevel":
            if behind_bytes:
                raise NotUnderstoodError("ByteLevel twice")
            if step.get("add_prefix_space", True):
                raise NotUnderstoodError("ByteLevel with add_prefix_space")
            if step.get("use_regex", True):
                yield build(Level(parse(BYTE_LEVEL_PATTERN)), keeps_gaps=True)
                found += 1
            behind_bytes = True
            continue
        # The reference isolates punctuation when the file does not say what to do with it.
        splitter = {"behavior": "Isolated", **step} if step["type"] == "Punctuation" else step
        # Of a split that removes, only the matches are understood: what it removes is between them.
        automaton = build(split_level(splitter), keeps_gaps=splitter.get("behavior") != "Removed")
        yield over_bytes(automaton) if behind_bytes else automaton
        found += 1
    if not found:
        raise NotUnderstoodError("ByteLevel without a split pattern")


# Added tokens and post-processor


def _added_tokens(config: Mapping[str, Any], model: Mapping[str, Any], form: str | None) -> tuple[AddedToken, ...]:
    normalize = normal_form(form).normalize_str if form else str
    found: dict[str, AddedToken] = {}
    next_id = len(model["vocab"])
    for entry in config.get("added_tokens") or ():
        content = entry["content"]
        if not content:
            continue  # the reference passes over it
        if entry["single_word"]:
            raise NotUnderstoodError(f"added token {content!r} is matched as a single word")
        if content in found:
            raise NotUnderstoodError(f"added token {content!r} is there twice")
        # The reference numbers them itself, new ones from the size of the vocabulary on; a file that says otherwise
        # would be read wrongly.
        given = model["vocab"].get(content, next_id)
        if given != entry["id"]:
            raise NotUnderstoodError(f"the reference gives added token {content!r} another id than the file")
        next_id += content not in model["vocab"]
        wanted = normalize(content) if entry["normalized"] else content
        if not wanted:
            raise NotUnderstoodError(f"added token {content!r} is empty when normalized")
        flags = bool(entry["normalized"]), bool(entry["lstrip"]), bool(entry["rstrip"])
        found[content] = AddedToken(wanted, given, *flags)
    return tuple(found.values())


def _refuse_overlaps(added: Sequence[AddedToken]) -> None:
    """Raise when white space that one token swallows can belong to another one of the same search: the reference then
    repeats text, or panics."""
    for normalized in (False, True):
        search = [token for token in added if token.normalized is normalized]
        if any(token.lstrip or token.rstrip for token in search):
            for token in search:
                if token.content != token.content.strip():
                    raise NotUnderstoodError(f"added token {token.content!r} beside one that strips white space")


def _trims_offsets(config: Mapping[str, Any]) -> bool:
    trimming = []
    for step in steps(config.get("post_processor"), "processors"):
        if step["type"] not in _POST_PROCESSORS:
            raise NotUnderstoodError(f"post-processor {step['type']}")
        if step["type"] in ("ByteLevel", "RobertaProcessing") and step.get("trim_offsets", True):
            trimming.append(step)
    if len(trimming) > 1:
        raise NotUnderstoodError("a post-processor that trims offsets twice")
    if trimming and trimming[0].get("add_prefix_space", True):
        raise NotUnderstoodError("a post-processor that trims offsets, with add_prefix_space")
    return bool(trimming)
