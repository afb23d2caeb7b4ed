"""Small tokenizers of every family, made on the spot: the structures of real ones with a vocabulary of our own.

The BPE model is trained once a run on this machine's standard library, then put behind the normalizers,
pre-tokenizers, added tokens and post-processors that real families have. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import random
from collections.abc import Callable
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from toksplice import Tokenizer, load

VOCABULARY = 1200

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    (
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
        "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
    ),
)
DEEPSEEK_LLM = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", "[一-龥ࠀ-一가-힣]+")
CHAT_TOKENS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "(<", "aba", "١٢")

Json = dict[str, Any]


def byte_level(*, use_regex: bool = False) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split(pattern: str, behavior: str = "Isolated", *, invert: bool = False) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps: Json) -> Json:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(content: str, **flags: bool) -> Json:
    return {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False} | flags


@functools.cache
def _trained() -> str:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    sources = [inspect.getsource(module) for module in (argparse, inspect, json, random)]
    digits = " ".join(str(n) for n in range(400)) + " ".join(chr(0x660 + n % 10) * 2 for n in range(100))
    tokenizer.train_from_iterator([*sources, digits, "世界 こんにちは 한국어 é ü " * 20], trainer)
    return tokenizer.to_str()


def bpe(pre_tokenizer: Json | None, *, normalizer: Json | None = None, tokens: list[Json] | None = None) -> Json:
    config: Json = json.loads(_trained())
    config["pre_tokenizer"] = pre_tokenizer
    config["normalizer"] = normalizer
    first = len(config["model"]["vocab"])
    chosen = tokens if tokens is not None else [added(content) for content in CHAT_TOKENS]
    config["added_tokens"] = [{"id": first + i, "special": True, **token} for i, token in enumerate(chosen)]
    config["post_processor"] = None
    return config


def _with_bos(config: Json) -> Json:
    bos = config["added_tokens"][0]
    item = {"SpecialToken": {"id": bos["content"], "type_id": 0}}
    config["post_processor"] = {
        "type": "Sequence",
        "processors": [
            byte_level(),
            {
                "type": "TemplateProcessing",
                "single": [item, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [item, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {
                    bos["content"]: {"id": bos["content"], "ids": [bos["id"]], "tokens": [bos["content"]]}
                },
            },
        ],
    }
    return config


def _llama3() -> Json:
    config = _with_bos(bpe(sequence(split(CL100K), byte_level())))
    config["model"]["ignore_merges"] = True
    return config


def _gpt2() -> Json:
    config = bpe(byte_level(use_regex=True))
    config["post_processor"] = byte_level() | {"add_prefix_space": True}
    return config


def _neox() -> Json:
    spaces = [added(" " * n, normalized=True) for n in range(24, 1, -1)]
    return bpe(byte_level(use_regex=True), normalizer={"type": "NFC"}, tokens=[added("<|endoftext|>"), *spaces])


def _stripping() -> Json:
    tokens = [
        added("<mask>", rstrip=True),
        added("word", single_word=True),
        added("<left>", lstrip=True),
        added("ö", normalized=True),
    ]
    return bpe(byte_level(use_regex=True), tokens=tokens)


def _llama2() -> Json:
    return bpe({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False})


def _falcon() -> Json:
    punctuation = {"type": "Punctuation", "behavior": "Contiguous"}
    digits = {"type": "Digits", "individual_digits": False}
    return bpe(sequence(punctuation, byte_level(use_regex=True), digits, split("[0-9][0-9][0-9]")))


def _bert() -> Json:
    words = ["[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz0123456789.,!?()", "the", "token", "return"]
    words += [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"] + ["##ing", "##er"]
    config = bpe({"type": "BertPreTokenizer"}, tokens=[])
    config["normalizer"] = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    }
    config["model"] = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {word: i for i, word in enumerate(words)},
    }
    config["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}
    return config


def _digits_first() -> Json:
    return bpe(sequence({"type": "Digits", "individual_digits": True}, byte_level(use_regex=True)))


def _punctuation_first() -> Json:
    return bpe(sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(use_regex=True)))


#: Families that route C serves.
CERTIFIED: dict[str, Callable[[], Json]] = {
    "gpt2": _gpt2,
    "cl100k": lambda: bpe(sequence(split(CL100K, "Removed", invert=True), byte_level())),
    "llama3": _llama3,
    "qwen": lambda: bpe(sequence(split(QWEN), byte_level()), normalizer={"type": "NFC"}),
    "o200k": lambda: bpe(sequence(split(O200K), byte_level())),
    "deepseek": lambda: bpe(sequence(*map(split, DEEPSEEK), byte_level())),
    "deepseek_llm": lambda: bpe(
        sequence(*map(split, DEEPSEEK_LLM), {"type": "Digits", "individual_digits": True}, byte_level())
    ),
    "starcoder": _digits_first,
    "punctuation": _punctuation_first,
    "neox": _neox,
    "claude": lambda: bpe(byte_level(use_regex=True), normalizer={"type": "NFKC"}),
    "nfd": lambda: bpe(byte_level(use_regex=True), normalizer={"type": "NFD"}),
    "stripping": _stripping,
}

#: Families that only the reference serves.
REFERENCE_ONLY: dict[str, Callable[[], Json]] = {"llama2": _llama2, "falcon": _falcon}
#: Split at white space: words are cut without a certificate.
WORDS: dict[str, Callable[[], Json]] = {"bert": _bert}


#: Served by the native engine's route A.
ENGINE = tuple(
    name
    for name in CERTIFIED | REFERENCE_ONLY
    if name not in ("gpt2", "stripping", "llama2")  # a space before the text; whole words only; no byte fallback
)


@functools.cache
def tokenizer_json(name: str) -> bytes:
    """The tokenizer.json of a family."""
    return json.dumps((CERTIFIED | WORDS | REFERENCE_ONLY)[name]()).encode()


@functools.cache
def family(name: str, *, engine: bool = True) -> Tokenizer:
    """The loaded tokenizer of a family; without the native engine if that is asked for."""
    return load(tokenizer_json(name), name=name, engine=engine)
