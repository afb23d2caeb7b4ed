"""`toksplice tokenize FILE`: the ids of one text."""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from cli.errors import CliError, ExitCode
from cli.output import note, stdout, write_json
from cli.wiring import add_tokenizer_arguments, choose_tokenizer, open_registry

MAX_FILE_BYTES = 256 * 1024 * 1024
SHOWN_IDS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help='a UTF-8 text file; "-" is stdin')
    add_tokenizer_arguments(parser)
    parser.add_argument("--add-special-tokens", action="store_true", help="as the post-processor adds them")
    parser.add_argument("--json", action="store_true", help="write all ids as JSON to stdout")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    text = _read(options.file)
    registry = open_registry(options.registry)
    entry = choose_tokenizer(registry, options.tokenizer)
    ids = registry.get(entry.fingerprint).encode(text, add_special_tokens=options.add_special_tokens)
    if options.json:
        write_json({"tokenizer": entry.name, "fingerprint": entry.fingerprint, "ids": ids.tolist()})
        return ExitCode.OK
    shown = " ".join(map(str, ids[:SHOWN_IDS].tolist()))
    digest = hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest()
    stdout().print(f"{shown}{' ...' if len(ids) > SHOWN_IDS else ''}", markup=False, soft_wrap=True)
    note(f"{entry.name}: {len(text):,} characters, {len(ids):,} tokens, SHA-256 of the ids {digest[:16]}")
    return ExitCode.OK


def _read(name: str) -> str:
    with sys.stdin.buffer if name == "-" else Path(name).open("rb") as handle:
        data = handle.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise CliError(ExitCode.INPUT, f"{name}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CliError(ExitCode.INPUT, f"{name}: not UTF-8 (byte {error.start})") from error
