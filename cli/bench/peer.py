"""The program that a peer's own Python runs: it loads one tokenizer, answers requests, and holds the clock.

It is started by path in an environment that has the peer and nothing of ours, so it imports the standard library
only, and the peer by name. Requests and answers are JSON, a line each, on stdin and stdout:

    {"op": "load", "adapter", "path", "name"}   -> {"version"}
    {"op": "text", "key", "text"}               -> {}                       keeps a text for later requests
    {"op": "encode", "text", "times"}           -> {"ns": [...], "digest", "tokens"}
    {"op": "edits", "context", "special", "before": [edit, ...], "timed": [edit, ...]}
                                                -> {"ns": [...], "digest", "tokens"}
    {"op": "threads", "context", "lanes": [[edit, ...], [edit, ...]]}
                                                -> {"one_ns", "two_ns"}
    {"op": "hold", "edits": [edit, ...], "keep"} -> {"tokens", "size_bytes"}   a session, held when `keep`
    {"op": "resident"}                          -> {"bytes"}

An edit is [start, end, text, start_byte, end_byte]: characters [start, end) of the text become `text`; the same
place in UTF-8 bytes. A digest is the SHA-256 of the ids as little-endian u32. What fails is {"error": reason}.
Cyclic garbage is collected between requests and never inside a timed region.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import hashlib
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

Edit = tuple[int, int, str, int, int]
Call = Callable[[], None]


class CannotError(Exception):
    """What a peer has no way to do."""


class Conversation:
    """What an adapter opens: `prepare` gives the call to time for an edit, `ids` all ids afterwards."""

    @property
    def size_bytes(self) -> int | None:
        """What it says that it holds, if it does."""
        return None


class Whole(Conversation):
    """For a peer without sessions: each edit encodes the whole new text, which is put together outside the clock."""

    warm = True

    def __init__(self, adapter: Any, text: str, special: bool) -> None:
        self._adapter, self._special = adapter, special
        self.text = text
        self.result: Any = self.encode(text) if self.warm else None

    def encode(self, text: str) -> Any:
        return self._adapter.encode(text, self._special)

    def prepare(self, edit: Edit) -> Call:
        start, end, new = edit[:3]
        self.text = text = self.text[:start] + new + self.text[end:]

        def call() -> None:
            self.result = self.encode(text)

        return call

    def ids(self) -> Any:
        return self.result


class Cold(Whole):
    """The same without encoding the context first, for a peer that remembers nothing of it worth the time."""

    warm = False


class Adapter:
    """One tokenizer of one peer. `encode` gives the ids in the peer's fastest form of them."""

    package = ""
    session: Callable[..., Any] = Whole

    def open(self, text: str, special: bool) -> Any:
        return type(self).session(self, text, special)


class TokSpliceSession(Conversation):
    def __init__(self, adapter: Any, text: str, special: bool) -> None:
        self._session = adapter.tokenizer.session(text, add_special_tokens=special)

    def prepare(self, edit: Edit) -> Call:
        _, _, new, start, end = edit
        session = self._session

        def call() -> None:
            if start == session.length:
                session.append(new)
            elif new or end < session.length:
                session.splice(start, end, new)
            else:
                session.truncate(start)

        return call

    def ids(self) -> Any:
        return self._session.ids

    @property
    def size_bytes(self) -> int | None:
        return int(self._session.size_bytes)


class TokSplice(Adapter):
    package = "toksplice"
    session = TokSpliceSession

    def __init__(self, path: str, name: str) -> None:
        self.tokenizer = importlib.import_module("toksplice").load(path)

    def encode(self, text: str, special: bool) -> Any:
        return self.tokenizer.encode(text, add_special_tokens=special)


class Reference(Adapter):
    package = "tokenizers"
    session = Cold

    def __init__(self, path: str, name: str) -> None:
        self.tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(path)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        if getattr(self.tokenizer.model, "dropout", None):
            self.tokenizer.model.dropout = None

    def encode(self, text: str, special: bool) -> Any:
        # The form without offsets is the fastest one, and the only one that releases the interpreter's lock.
        return self.tokenizer.encode_batch_fast([text], add_special_tokens=special)[0].ids


class Gigatoken(Adapter):
    package = "gigatoken"

    def __init__(self, path: str, name: str) -> None:
        self.tokenizer = importlib.import_module("gigatoken").Tokenizer(path)

    def encode(self, text: str, special: bool) -> Any:
        if special:
            raise CannotError("its encode() adds no special tokens")
        return self.tokenizer.encode(text)


class TokTierNamed(Whole):
    """`encode(text, session=)`: the whole text is handed over, the session finds what is new."""

    def __init__(self, adapter: Any, text: str, special: bool) -> None:
        self._name = f"bench-{next(adapter.numbers)}"
        super().__init__(adapter, text, special)

    def encode(self, text: str) -> Any:
        return self._adapter.tokenizer.encode(text, session=self._name, add_special_tokens=self._special).ids


class TokTierObject(Conversation):
    """A `Session` object, whose `append()` gives all ids and whose `append_patch()` gives the changed ones."""

    method = ""

    def __init__(self, adapter: Any, text: str, special: bool) -> None:
        if special:
            raise CannotError("its sessions hold no special tokens")
        # A context manager whose end only leaves the session behind, which is what holding it is.
        self._manager = adapter.tokenizer.session(session_id=f"bench-{next(adapter.numbers)}", text=text)
        self._session = self._manager.__enter__()
        self._chars = len(text)

    def prepare(self, edit: Edit) -> Call:
        start, end, new = edit[:3]
        if not start == end == self._chars:
            raise CannotError("its sessions can only append")
        self._chars += len(new)
        method = getattr(self._session, self.method)

        def call() -> None:
            method(new)

        return call

    def ids(self) -> Any:
        return self._session.ids


class AppendObject(TokTierObject):
    method = "append"


class PatchObject(TokTierObject):
    method = "append_patch"


class TokTierEncode(Adapter):
    """It accelerates only files whose hash it lists. They are put where it looks for its own downloads, and named by a
    manifest that lists the tokenizer.json alone."""

    package = "toktier"
    session: Callable[..., Any] = TokTierNamed

    def __init__(self, path: str, name: str) -> None:
        toktier: Any = importlib.import_module("toktier")
        listed = importlib.import_module("toktier.artifacts.manifest").ArtifactManifest
        data = Path(path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        tables = Path(toktier.__file__).parent / "artifacts" / "tables" / "artifact_manifest.v1.json"
        families = {
            entry["files"]["tokenizer.json"]["sha256"]: (family, entry)
            for family, entry in json.loads(tables.read_text(encoding="utf-8")).items()
            if "tokenizer.json" in entry.get("files", {})
        }
        if digest not in families:
            raise CannotError("this tokenizer.json is not one of those whose hash it lists")
        family, entry = families[digest]
        alone = {**entry, "files": {"tokenizer.json": entry["files"]["tokenizer.json"]}}
        manifest = listed.from_mapping({family: alone})
        store = importlib.import_module("toktier.artifacts.store").ArtifactStore
        config = importlib.import_module("toktier.config").Config.resolve()
        folder = store(manifest, config=config).directory(family)
        folder.mkdir(parents=True, exist_ok=True)
        # Renamed into place: other processes of the same peer may do the same now.
        draft = folder / f"tokenizer.json.{os.getpid()}"
        draft.write_bytes(data)
        draft.replace(folder / "tokenizer.json")
        self.tokenizer = toktier.load(family, manifest=manifest, device="cpu")
        self.numbers = iter(range(1 << 62))

    def encode(self, text: str, special: bool) -> Any:
        return self.tokenizer.encode(text, lookup="off", add_special_tokens=special).ids


class TokTierAppend(TokTierEncode):
    session = AppendObject


class TokTierPatch(TokTierEncode):
    session = PatchObject


class Fastokens(Adapter):
    package = "fastokens"

    def __init__(self, path: str, name: str) -> None:
        self.tokenizer = importlib.import_module("fastokens").Tokenizer.from_file(path)

    def encode(self, text: str, special: bool) -> Any:
        return self.tokenizer.encode_batch_flat([text], special)[0]  # u32 as bytes


class Quicktok(Adapter):
    package = "quicktok-v1"

    def __init__(self, path: str, name: str) -> None:
        quicktok = importlib.import_module("quicktok")
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
        quicktok.import_tokenizer(path, f"bench_{digest}")
        self.tokenizer = quicktok.get_encoding(f"bench_{digest}")

    def encode(self, text: str, special: bool) -> Any:
        if special:
            raise CannotError("it adds no special tokens")
        # Its batch form gives an array, but takes twenty times as long where special tokens are looked for.
        return self.tokenizer.encode(text, allowed_special="all")


class Tokie(Adapter):
    package = "tokie"

    def __init__(self, path: str, name: str) -> None:
        self.tokenizer = importlib.import_module("tokie").Tokenizer.from_json(path)

    def encode(self, text: str, special: bool) -> Any:
        return self.tokenizer.encode(text, special).ids


class Kitoken(Adapter):
    package = "kitoken"

    def __init__(self, path: str, name: str) -> None:
        self.tokenizer = importlib.import_module("kitoken").Kitoken.from_tokenizers_file(path)

    def encode(self, text: str, special: bool) -> Any:
        if special:
            raise CannotError("it adds no special tokens")
        return self.tokenizer.encode(text, True)


class Tiktoken(Adapter):
    """It reads no tokenizer.json: ranks and pattern are taken out of one that has a single split pattern."""

    package = "tiktoken"

    def __init__(self, path: str, name: str) -> None:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
        pre = config.get("pre_tokenizer") or {}
        steps = pre.get("pretokenizers") or [pre]
        patterns = [step["pattern"].get("Regex") for step in steps if step.get("type") == "Split"]
        if [step.get("type") for step in steps] != ["Split", "ByteLevel"] or not patterns[0]:
            raise CannotError("it can only split by one pattern, and this tokenizer does not")
        alphabet = byte_alphabet()
        ranks = {bytes(alphabet[char] for char in word): rank for word, rank in config["model"]["vocab"].items()}
        added = {token["content"]: token["id"] for token in config.get("added_tokens") or ()}
        self.tokenizer = importlib.import_module("tiktoken").Encoding(
            name, pat_str=patterns[0], mergeable_ranks=ranks, special_tokens=added
        )

    def encode(self, text: str, special: bool) -> Any:
        if special:
            raise CannotError("it adds no special tokens")
        return self.tokenizer.encode(text, allowed_special="all")


def byte_alphabet() -> dict[str, int]:
    """The characters by which a byte-level vocabulary writes bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(0x100) if value not in plain]
    return {chr(value): value for value in plain} | {chr(0x100 + n): value for n, value in enumerate(others)}


ADAPTERS: dict[str, Callable[[str, str], Any]] = {
    kind.__name__: kind
    for kind in (
        TokSplice,
        Reference,
        Gigatoken,
        TokTierEncode,
        TokTierAppend,
        TokTierPatch,
        Fastokens,
        Quicktok,
        Tokie,
        Kitoken,
        Tiktoken,
    )
}


def digest_of(ids: Any) -> tuple[str, int]:
    """Digest and number of ids, whatever form they have."""
    if isinstance(ids, bytes):
        data = ids
    elif hasattr(ids, "astype"):
        data = ids.astype("<u4").tobytes()
    else:
        words = array.array("I", ids)
        if sys.byteorder == "big":
            words.byteswap()
        data = words.tobytes()
    return hashlib.sha256(data).hexdigest(), len(data) // 4


class Server:
    """The state between requests: one tokenizer, the texts it was given, the sessions it holds."""

    def __init__(self) -> None:
        self.adapter: Any = None
        self.texts = {"": ""}
        self.held: list[Any] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        gc.collect()
        handler = getattr(self, f"do_{request.pop('op')}")
        found: dict[str, Any] = handler(**request)
        return found

    def do_load(self, adapter: str, path: str, name: str) -> dict[str, Any]:
        kind: Any = ADAPTERS[adapter]
        self.adapter = kind(path, name)
        try:
            version = metadata.version(kind.package)
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        return {"version": version}

    def do_text(self, key: str, text: str) -> dict[str, Any]:
        self.texts[key] = text
        return {}

    def do_encode(self, text: str, times: int) -> dict[str, Any]:
        encode, spent, ids = self.adapter.encode, [], None
        for _ in range(times):
            started = time.perf_counter_ns()
            ids = encode(text, False)
            spent.append(time.perf_counter_ns() - started)
        digest, tokens = digest_of(ids)
        return {"ns": spent, "digest": digest, "tokens": tokens}

    def do_edits(self, context: str, special: bool, before: list[Edit], timed: list[Edit]) -> dict[str, Any]:
        session = self.adapter.open(self.texts[context], special)
        for edit in before:
            session.prepare(edit)()
        spent = []
        for edit in timed:
            call = session.prepare(edit)
            started = time.perf_counter_ns()
            call()
            spent.append(time.perf_counter_ns() - started)
        digest, tokens = digest_of(session.ids())
        return {"ns": spent, "digest": digest, "tokens": tokens}

    def do_threads(self, context: str, lanes: list[list[Edit]]) -> dict[str, Any]:
        text = self.texts[context]

        def calls() -> list[list[Call]]:
            sessions = [self.adapter.open(text, False) for _ in lanes]
            return [[session.prepare(edit) for edit in edits] for session, edits in zip(sessions, lanes, strict=True)]

        alone = calls()
        started = time.perf_counter_ns()
        for call in (call for lane in alone for call in lane):
            call()
        one_ns = time.perf_counter_ns() - started
        return {"one_ns": one_ns, "two_ns": together(calls())}

    def do_hold(self, edits: list[Edit], keep: bool) -> dict[str, Any]:
        session = self.adapter.open("", False)
        for edit in edits:
            session.prepare(edit)()
        if keep:
            self.held.append(session)
        return {"tokens": digest_of(session.ids())[1], "size_bytes": session.size_bytes}

    def do_resident(self) -> dict[str, Any]:
        # What was freed goes back to the system first, or it would count as held.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return {"bytes": pages * os.sysconf("SC_PAGE_SIZE")}


def together(lanes: Sequence[Sequence[Call]]) -> int:
    """Nanoseconds until every lane is done, each on a thread of its own, from the moment that all are ready."""
    ready = threading.Barrier(len(lanes) + 1)

    def run(calls: Sequence[Call]) -> None:
        ready.wait()
        for call in calls:
            call()

    threads = [threading.Thread(target=run, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter_ns()
    for thread in threads:
        thread.join()
    return time.perf_counter_ns() - started


def serve() -> None:
    """Answer requests until stdin ends. Whatever a peer prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    gc.disable()
    server = Server()
    for line in sys.stdin.buffer:
        try:
            answer = server.answer(json.loads(line))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of a Rust library is no Exception
            answer = {"error": " ".join((str(error) or type(error).__name__).split())[:400]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
