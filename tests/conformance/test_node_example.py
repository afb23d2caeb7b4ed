"""The Node.js example speaks the same protocol: first over bytes alone, then through a whole pipeline.

Its npm packages are installed once into .cache/ at the repository root, at the exact versions of its
package.json and without running any package's scripts.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.codec import lz4_encode
from fetching import alone_in

from schemas import topics
from schemas.codes import Code, Status
from schemas.limits import INT_MAX
from schemas.reply import Reply
from schemas.request import Base, Op, Request
from schemas.topics import DEFAULT_PARTITIONS, murmur2, partition_for, session_key

pytestmark = pytest.mark.node

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "node"
GOLDEN = Path(__file__).parent / "golden"
RUN_S = 60
INSTALL_S = 240
TALK_S = 120
OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "ERR_SOCKET_TIMEOUT")


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """A copy of the example with its packages installed; skips without Node.js, npm or a way to the registry."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("Node.js and npm are not installed")
    files = sorted(path for path in EXAMPLE.iterdir() if path.suffix in (".mjs", ".json"))
    digest = hashlib.sha256((EXAMPLE / "package.json").read_bytes()).hexdigest()[:16]
    folder = ROOT / ".cache" / f"node-example-{digest}"
    with alone_in(folder):
        _install(files, folder)
    return folder


def _install(files: list[Path], folder: Path) -> None:
    for path in files:
        copy = folder / path.name
        if not copy.exists() or copy.read_bytes() != path.read_bytes():  # another process may run what is there
            shutil.copy(path, copy)
    installed = folder / "installed"
    if not installed.exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode and any(word in done.stderr for word in OFFLINE):
            pytest.skip(f"npm cannot reach its registry: {done.stderr[-200:]}")
        assert done.returncode == 0, done.stderr
        installed.touch()


def run_node(folder: Path, arguments: list[str], stdin: str = "") -> str:
    """The output of `node ARGUMENTS` in `folder`, which must succeed."""
    done = subprocess.run(
        ["node", *arguments], cwd=folder, input=stdin, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def through_node(folder: Path, mode: str, lines: list[str]) -> list[dict[str, object]]:
    """What the example prints for `lines` in `mode`, one object a line."""
    output = run_node(folder, ["produce_and_consume.mjs", mode], "\n".join(lines) + "\n")
    return [json.loads(line) for line in output.splitlines()]


REQUESTS: list[dict[str, object]] = [
    {"request_id": "1", "session_id": "", "tokenizer": "t", "op": "text", "text": ""},
    {
        "request_id": "é" * 32,
        "tenant": "acme",
        "session_id": "agent 🙂",
        "tokenizer": "qwen3",
        "add_special_tokens": True,
        "op": "append",
        "base": {"revision": 2**32, "length": INT_MAX, "epoch": INT_MAX},
        "text": "\0 한국어 🙂 " * 100,
        "want": "ids",
        "offsets": True,
        "deadline_ms": 1_767_225_600_000,
    },
    {
        "request_id": "3",
        "session_id": "s",
        "tokenizer": "t",
        "op": "splice",
        "base": {"revision": 1, "length": 70_000, "epoch": 0},
        "text": "x" * 70_000,
        "start": 255,
        "end": 65_536,
    },
    {
        "request_id": "4",
        "session_id": "s",
        "tokenizer": "t",
        "op": "truncate",
        "base": {"revision": 1, "length": 9},
        "length": 0,
    },
    {
        "request_id": "5",
        "session_id": "s",
        "tokenizer": "t",
        "op": "fork",
        "base": {"revision": 1, "length": 9},
        "new_session": "s2",
    },
    {"request_id": "6", "session_id": "s", "tokenizer": "t", "op": "close"},
]


def test_its_requests_are_ours(node_folder: Path) -> None:
    printed = through_node(node_folder, "--encode", [json.dumps(request) for request in REQUESTS])
    assert len(printed) == len(REQUESTS)
    for given, line in zip(REQUESTS, printed, strict=True):
        request = Request.decode(bytes.fromhex(str(line["hex"])))
        assert {name: _plain(getattr(request, name)) for name in given} == given
        key = session_key(request.tenant, request.session_id)
        assert bytes.fromhex(str(line["key"])) == key
        assert line["partition"] == partition_for(key, DEFAULT_PARTITIONS)


def _plain(value: object) -> object:
    if hasattr(value, "FIELDS"):
        pairs = ((row.name, getattr(value, row.name)) for row in value.FIELDS)
        return {name: item for name, item in pairs if item is not None}
    return value


def test_it_replaces_lone_surrogates_before_sending(node_folder: Path) -> None:
    line = '{"request_id":"1","session_id":"","tokenizer":"t","op":"text","text":"a\\ud800b"}'
    (printed,) = through_node(node_folder, "--encode", [line])
    assert Request.decode(bytes.fromhex(str(printed["hex"]))).text == "a\ufffdb"


def test_it_reads_our_replies(node_folder: Path) -> None:
    cases = json.loads((GOLDEN / "golden.json").read_text(encoding="ascii"))["cases"]
    records = [(GOLDEN / case["file"]).read_bytes() for case in cases if case["message"] == "Reply"]
    printed = through_node(node_folder, "--decode", [record.hex() for record in records])
    assert len(printed) == len(records) > 10
    for record, line in zip(records, printed, strict=True):
        reply = Reply.decode(record)
        assert line["ids"] == _numbers(reply.ids)
        assert line.get("offsets") == (None if reply.offsets is None else _numbers(reply.offsets))
        for name in ("status", "code", "message", "retriable", "epoch", "revision", "length", "total", "timings"):
            assert line.get(name) == getattr(reply, name), name


def _numbers(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def test_its_murmur2_is_kafkas(node_folder: Path) -> None:
    keys = [bytes((7 * i + n) % 256 for i in range(n)) for n in range(40)]
    script = """
        import { murmur2 } from "./protocol.mjs";
        for (const hex of process.argv.slice(1)) console.log(murmur2(Buffer.from(hex, "hex")));
    """
    output = run_node(node_folder, ["--input-type=module", "-e", script, "--", *(key.hex() or "''" for key in keys)])
    assert [int(line) for line in output.split()] == [murmur2(key) for key in keys]


def test_its_patches_are_applied_and_checked(node_folder: Path) -> None:
    script = """
        import { applyPatch } from "./protocol.mjs";
        const patch = (keep_left, ids, keep_right, total) => ({ keep_left, ids, keep_right, total });
        console.log(JSON.stringify([
            applyPatch([], patch(0, [1, 2], 0, 2)),
            applyPatch([1, 2, 3, 4], patch(1, [9, 9], 2, 5)),
            applyPatch([1, 2], patch(2, [], 0, 2)),
            applyPatch([1, 2], patch(0, [], 0, 0)),
        ]));
        try { applyPatch([1], patch(1, [2], 1, 2)); } catch (error) { console.log(JSON.stringify(error.message)); }
    """
    results, refused = run_node(node_folder, ["--input-type=module", "-e", script]).splitlines()
    assert json.loads(results) == [[1, 2], [1, 9, 9, 3, 4], [1, 2], []]
    assert "3 ids" in json.loads(refused)


def test_it_reads_the_lz4_frames_of_our_producer(node_folder: Path, tmp_path: Path) -> None:
    contents = [b"", b"a", b"hello world" * 40, bytes(range(256)) * 700, b"\0" * 300_000]
    frames = [lz4_encode(content) for content in contents]
    frames += [lz4.frame.compress(content, block_linked=linked) for content in contents for linked in (0, 1)]
    frames += [lz4.frame.compress(content, content_checksum=True, store_size=False) for content in contents]
    for number, frame in enumerate(frames):
        (tmp_path / f"{number:03}").write_bytes(frame)
    script = """
        import { createHash } from "node:crypto";
        import { readFileSync, readdirSync } from "node:fs";
        import { decompress } from "./lz4.mjs";
        const folder = process.argv[1];
        for (const name of readdirSync(folder).sort()) {
            const frame = readFileSync(`${folder}/${name}`);
            console.log(createHash("sha256").update(decompress(frame)).digest("hex"));
            for (const size of [frame.length - 1, frame.length >> 1, 6, 0]) {
                let refused = false;
                try { decompress(frame.subarray(0, size)); } catch { refused = true; }
                if (!refused) throw new Error(`${name} cut to ${size} bytes was taken`);
            }
        }
    """
    output = run_node(node_folder, ["--input-type=module", "-e", script, "--", str(tmp_path)])
    expected = [lz4.frame.decompress(frame) for frame in frames]
    assert expected[: len(contents)] == contents
    assert output.split() == [hashlib.sha256(content).hexdigest() for content in expected]


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--tokenizer", "t"], "no broker"),
        (["--broker", "127.0.0.1:9"], "no tokenizer"),
        (["--unheard-of"], "--unheard-of"),
    ],
)
def test_its_errors_are_one_line(node_folder: Path, arguments: list[str], cause: str) -> None:
    done = subprocess.run(
        ["node", "produce_and_consume.mjs", *arguments],
        cwd=node_folder,
        env={"PATH": str(Path(shutil.which("node") or "").parent)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 1
    assert cause in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def talk(folder: Path, *arguments: str) -> list[dict[str, object]]:
    """What the example prints when it talks to a broker, one object a line."""
    command = ["node", "produce_and_consume.mjs", "--tokenizer", "test", *arguments]
    node = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await asyncio.wait_for(node.communicate(), TALK_S)
    assert node.returncode == 0, errors.decode()
    return [json.loads(line) for line in output.decode().splitlines()]


class CodePointWorker:
    """Answers requests as the pipeline would, with code points for ids; the first append gets `need_text`.

    It writes each reply twice, as a worker may after a crash, and compresses them.
    """

    def __init__(self, bootstrap: str, namespace: str) -> None:
        self._namespace = namespace
        self._consumer = AIOKafkaConsumer(
            namespace + topics.REQUESTS, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="lz4", acks="all")
        self._text = ""
        self._revision = 0
        self._refused = False

    async def serve(self) -> None:
        """Answer until cancelled."""
        await self._consumer.start()
        await self._producer.start()
        try:
            async for record in self._consumer:
                request = Request.decode(record.value)
                key = session_key(request.tenant, request.session_id)
                assert (record.key, record.partition) == (key, partition_for(key, DEFAULT_PARTITIONS))
                value = self._answer(request).encode()
                for _ in range(2):
                    await self._producer.send_and_wait(
                        self._namespace + topics.REPLIES, value, key=key, partition=record.partition
                    )
        finally:
            await self._consumer.stop()
            await self._producer.stop()

    def _answer(self, request: Request) -> Reply:
        if request.op is Op.APPEND and not self._refused:
            self._refused = True
            return Reply.failure(request.request_id, Code.UNKNOWN_SESSION, "gone", session_id=request.session_id)
        kept = len(self._text) if request.op is Op.APPEND else 0
        self._text = self._text[:kept] + (request.text or "")
        self._revision += 1
        sent = [ord(character) for character in self._text[kept:]]
        if request.base is not None:
            assert request.base == Base(revision=self._revision - 1, length=kept, epoch=INT_MAX)
        return Reply(
            request_id=request.request_id,
            session_id=request.session_id,
            status=Status.OK,
            reason="compressible " * 8,
            epoch=INT_MAX,
            revision=self._revision,
            length=len(self._text),
            keep_left=kept,
            ids=b"".join(number.to_bytes(4, "little") for number in sent),
            total=len(self._text),
        )


@pytest.mark.broker
async def test_its_client_library_works_with_a_real_broker(node_folder: Path, kafka_factory: Any) -> None:
    bootstrap, namespace = kafka_factory.server.bootstrap, kafka_factory.settings.namespace
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    names = (namespace + topics.REQUESTS, namespace + topics.REPLIES)
    await admin.create_topics([NewTopic(name, DEFAULT_PARTITIONS, 1) for name in names])
    await admin.close()
    serving = asyncio.create_task(CodePointWorker(bootstrap, namespace).serve())
    try:
        broker = ("--broker", f"kafka://{bootstrap}", "--namespace", namespace)
        again = await talk(node_folder, *broker, "--text", "abc", "--append", "de")
        once = await talk(node_folder, *broker, "--text", "abc", "--append", "de")
        assert not serving.done(), serving.exception()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert [(line["op"], line["status"]) for line in again] == [
        ("text", "ok"),
        ("append", "need_text"),
        ("text", "ok"),
        ("close", "ok"),
    ]
    assert [(line["op"], line["status"], line["sent"]) for line in once] == [
        ("text", "ok", 3),
        ("append", "ok", 2),
        ("close", "ok", 0),
    ]
    for lines in (again, once):
        assert lines[0]["ids"] == [ord(character) for character in "abc"]
        assert lines[-2]["ids"] == [ord(character) for character in "abcde"]


@pytest.mark.broker
async def test_it_talks_to_a_running_pipeline(node_folder: Path, running_pipeline_on_kafka: str) -> None:
    """A text, an append and a close through every worker.

    The fixture starts Kafka and the workers, with a tokenizer registered as `test`, and gives the broker's
    "host:port". The patched ids must be those of a fresh encoding of the whole text.
    """
    text, more = "The quick brown fox ", "jumps — über 한국어 🙂."
    broker = ("--broker", running_pipeline_on_kafka)
    lines = await talk(node_folder, *broker, "--text", text, "--append", more)
    assert [(line["op"], line["status"]) for line in lines] == [
        ("text", "ok"),
        ("append", "ok"),
        ("close", "ok"),
    ]
    whole = await talk(node_folder, *broker, "--text", text + more, "--append", "")
    assert lines[1]["ids"] == whole[0]["ids"]
