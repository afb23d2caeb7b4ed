"""What only a real CUDA device can show: `make gpu-check` runs this in under eight minutes.

    python -m tests.gpu_check [--tokenizer FILE ...] [--text FILE] [--page docs/gpu.md]

The kernels' answers are compared with the reference on adversarial and on real text, once more under compute-sanitizer,
and measured. The results, with the device's name, go into the page. Ends with 1 when an answer is wrong or a sanitizer
finds something, with 3 when there is no device.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_worker.chain import CAPACITIES, Chain
from gpu_worker.cuda import NoDeviceError, open_device
from gpu_worker.device import Device
from gpu_worker.encoder import Encoding
from gpu_worker.program import compile_for
from toksplice import SourceError, Tokenizer, load
from toksplice.sources import Fetcher

from .cuda_on_cpu.check import Checker, Tally, strings_for
from .cuda_on_cpu.oracle import Wrong as Wrong

ROOT = Path(__file__).parents[1]
EXIT_WRONG, EXIT_NO_DEVICE = 1, 3

#: Checked when none is named; those that cannot be fetched are left out, and named in the table.
TOKENIZERS = ("gpt2", "qwen3", "llama3", "o200k", "deepseek_v3")
STRINGS = 20_000
REAL_CHARS = 4_000_000
#: Under a sanitizer a launch takes hundreds of times as long.
SANITIZED_STRINGS = 200
SANITIZER_S_MAX = 60
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
#: The published figure is for a text of this length.
LATENCY_CHARS = 1_000_000
ROUNDS = 200
BATCH_TEXT_CHARS = 20_000
BATCH_ROUNDS = 20

BEGIN, END = "<!-- gpu-check: begin -->", "<!-- gpu-check: end -->"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the page's table."""

    what: str
    figure: str
    right: bool = True


def exactness(device: Device, tokenizer: Tokenizer, text: str, strings: int) -> Iterator[Row]:
    """Compare with the reference."""
    checker = Checker(tokenizer, device)
    for kind in ("adversarial texts", "characters of real text"):
        tally = Tally()
        if kind == "adversarial texts":
            checker.strings(itertools.islice(strings_for(tokenizer, seed=1), strings), tally)
            compared = f"{tally.texts:,}"
        else:
            checker.real(text, tally)
            compared = f"{len(text):,}"
        refused = f", for the host: {sum(tally.refused.values()):,}" if tally.refused else ""
        figure = f"{len(tally.wrong)} wrong of {compared}{refused}"
        for wrong in tally.wrong[:5]:
            sys.stderr.write(f"{tokenizer.name}: {wrong}\n")
        yield Row(f"{tokenizer.name}: {kind} equal to the reference", figure, right=not tally.wrong)


def latency(chain: Chain, text: str, rounds: int) -> Row:
    """One text at a time, from bytes to ids and offsets in arrays on the host."""
    data = (text * (LATENCY_CHARS // len(text) + 1))[:LATENCY_CHARS].encode()
    times = [_timed(chain, [data]) for _ in range(rounds + 10)][10:]
    quantiles = statistics.quantiles(times, n=100)
    figure = f"p50 {1e3 * statistics.median(times):.3f} ms, p99 {1e3 * quantiles[98]:.3f} ms"
    return Row(f"{LATENCY_CHARS:,} characters, bytes in, ids and offsets out", figure)


def throughput(chain: Chain, text: str, rounds: int) -> Row:
    """Many texts in a launch that fills the largest buffer."""
    data = text[:BATCH_TEXT_CHARS].encode()
    texts = [data] * ((CAPACITIES[-1] - 1) // (len(data) + 1))
    times = [_timed(chain, texts) for _ in range(rounds + 3)][3:]
    figure = f"{sum(map(len, texts)) / statistics.median(times) / 1e9:.2f} GB/s"
    return Row(f"batches of {len(texts)} texts of {len(data):,} bytes", figure)


def _timed(chain: Chain, texts: Sequence[bytes]) -> float:
    start = time.perf_counter()
    answers = chain.encode(texts)
    took = time.perf_counter() - start
    if not all(isinstance(answer, Encoding) for answer in answers):
        raise RuntimeError(f"the measured text was refused: {answers[0]}")
    return took


def sanitized(tool: str) -> Row:
    """The same comparison, on few texts, under a tool of compute-sanitizer."""
    what = f"compute-sanitizer --tool {tool}, {SANITIZED_STRINGS} adversarial texts"
    program = shutil.which("compute-sanitizer")
    if program is None:
        return Row(what, "not run: compute-sanitizer is not installed")
    command = [program, "--tool", tool, "--error-exitcode", "9"]
    command += [sys.executable, "-m", "tests.gpu_check", "--only-strings", str(SANITIZED_STRINGS)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SANITIZER_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        return Row(what, f"not finished within {SANITIZER_S_MAX} s")
    if done.returncode == 0:
        return Row(what, "nothing found")
    sys.stderr.write(done.stdout[-3000:] + done.stderr[-3000:])
    return Row(what, f"ended with {done.returncode}", right=False)


def tokenizers(files: Sequence[Path]) -> Iterator[Tokenizer | Row]:
    """The named ones, else those of `TOKENIZERS` that can be had."""
    for path in files:
        yield load(path)
    if files:
        return
    with Fetcher() as fetcher:
        for name in TOKENIZERS:
            try:
                yield load(fetcher.fetch(name), name=name)
            except SourceError as error:
                yield Row(f"{name}: equal to the reference", f"not run: {error}")


def real_text() -> str:
    """This Python's standard library, which every machine has."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in files)
    return (text * (REAL_CHARS // len(text) + 1))[:REAL_CHARS]


def table(device_name: str, rows: Sequence[Row]) -> str:
    """The page's part about a device, in Markdown."""
    lines = [f"Measured by `make gpu-check` on {device_name}, host {platform.machine()}, Python", ""]
    lines[0] = f"{lines[0]} {platform.python_version()}."
    lines += ["| what | figure |", "|---|---|", *(f"| {row.what} | {row.figure} |" for row in rows)]
    return "\n".join(lines)


def write(page: Path, content: str) -> None:
    """Put a device's results between the page's marks, in place of what is there."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{page} has no marks for the results")
    page.write_text(f"{before}{BEGIN}\n{content}\n{END}{after}", encoding="utf-8")


def check(device: Device, options: argparse.Namespace) -> list[Row]:
    """All that is checked and measured."""
    text = options.text.read_text(encoding="utf-8", errors="ignore")[:REAL_CHARS] if options.text else real_text()
    rows: list[Row] = []
    measured = False
    for found in tokenizers(options.tokenizer):
        if isinstance(found, Row):
            rows.append(found)
            continue
        rows += exactness(device, found, text, options.strings)
        if not measured:
            measured = True
            chain = Chain(device, compile_for(found))
            rows += [latency(chain, text, options.rounds), throughput(chain, text, max(options.rounds // 10, 1))]
    return [*rows, *map(sanitized, () if options.no_sanitizer else TOOLS)]


def main(arguments: Sequence[str] | None = None, opening: Callable[[], Any] = open_device) -> int:
    """Run the check; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_check", description=__doc__.split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, action="append", default=[], help="a tokenizer.json; may be repeated")
    parser.add_argument("--text", type=Path, help="a file of real text")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "gpu.md", help="where the results go")
    parser.add_argument("--strings", type=int, default=STRINGS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-sanitizer", action="store_true")
    parser.add_argument("--only-strings", type=int, help="compare so many texts with GPT-2's vocabulary, and no more")
    options = parser.parse_args(arguments)
    try:
        device = opening()
    except NoDeviceError as error:
        sys.stderr.write(f"nothing was checked: {error}\n")
        return EXIT_NO_DEVICE
    if options.only_strings is not None:
        with Fetcher() as fetcher:
            tokenizer = load(fetcher.fetch("gpt2"), name="gpt2")
        tally = Tally()
        texts = itertools.islice(strings_for(tokenizer, seed=2), options.only_strings)
        Checker(tokenizer, device).strings(texts, tally)
        return EXIT_WRONG if tally.wrong else 0
    rows = check(device, options)
    content = table(device.name, rows)
    write(options.page, content)
    sys.stdout.write(content + "\n")
    return 0 if all(row.right for row in rows) else EXIT_WRONG


if __name__ == "__main__":
    sys.exit(main())
