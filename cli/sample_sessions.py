"""Synthetic agent-shaped sessions, made from the installed Python's standard library: nothing to download.

They are the same every time. Each looks like the trace of a coding agent: a system prompt, a task, then many
turns in which the assistant says what it does and a tool answers: file reads with line numbers, greps,
directory listings, edits as diffs, test runs. The sizes of what each turn adds follow published agent traces:
the median is some 1,400 characters, most turns add a few hundred to a few thousand, a few add whole files.
"""

from __future__ import annotations

import difflib
import math
import random
import re
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cli.chat_template import ASSISTANT, GENERATION_PROMPT, render
from cli.sessions import Conversation

MEDIAN_RESULT_CHARS = 2_400
"""Aimed at by a tool's result. Many greps find little, so that the median of what a turn adds is 1,400."""
SPREAD = 1.1
"""Standard deviation of the logarithm of a result's size: one in forty is nine times the median."""
MAX_RESULT_CHARS = 30_000
LEAST_SESSION_CHARS = 2_000
"""The smallest `max_chars`: a system prompt, a task and a turn or two."""
MIN_SESSION_CHARS = 50_000
MAX_SESSION_CHARS = 300_000
MAX_FILES = 120

_SYSTEM = (
    "You are a careful software engineer working in a repository through tools. Read before you write, keep "
    "changes small, run the tests after each change, and explain what you did in plain words.\n\n"
    "Tools:\n- read(path, start, end): show numbered lines\n- grep(pattern, path): matching lines\n"
    "- list(path): names and sizes\n- edit(path, old, new): replace once\n- run(command): run it\n\n"
    "Rules:\n1. Never guess what a file holds.\n2. Quote paths exactly.\n3. Stop when the task is done."
)
_TASKS = (
    "`{name}` mishandles an empty argument. Find out where and fix it; don't change the public API.",
    "Please review {name} – I’d like clearer errors (naïve inputs such as “café” or '日本語' included).",
    "Add type hints to the helpers in {name}, then run the tests. It's fine to leave private ones alone.",
    "Why is {name} slow for large inputs? Measure first; then propose the smallest change that helps 🙂",
)
_THOUGHTS = (
    "I'll look at {name} first.",
    "That isn't the cause. Let me check who calls `{word}` before I change it.",
    "The function `{word}` doesn't handle this case; I'll read on to be sure.",
    "Now I've got what I need. The fix is small: handle it where `{word}` is defined in {name}.",
    "Let's run the tests — they should fail in exactly one place.",
)

_Tool = Callable[[random.Random, str, str, int], tuple[str, str]]


def sample_sessions(count: int, *, seed: int, max_chars: int = MAX_SESSION_CHARS) -> list[Conversation]:
    """`count` sessions that grow to between 50,000 characters and `max_chars`, evenly spread, shuffled.

    None is longer than `max_chars`; with one below 50,000 all are as long as that.
    """
    sources = _standard_library()
    sessions = []
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        least = min(MIN_SESSION_CHARS, max_chars)
        target = least + (max_chars - least) * number // max(1, count - 1)
        messages = tuple(_messages(rng, sources, target))
        sessions.append(Conversation(f"sample-{seed}-{number}", messages))
    random.Random(seed).shuffle(sessions)
    return sessions


def _standard_library() -> list[tuple[str, str]]:
    """(name, text) of the standard library's top-level modules, in a fixed order."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for path in sorted(folder.glob("*.py")):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) > 4_000:
            found.append((path.name, text))
    return found[:MAX_FILES] or [("example.py", "def example(value):\n    return value\n" * 400)]


def _messages(rng: random.Random, sources: Sequence[tuple[str, str]], target_chars: int) -> Iterator[tuple[str, str]]:
    name, text = rng.choice(sources)
    opening = (("system", _SYSTEM), ("user", rng.choice(_TASKS).format(name=name)))
    yield from opening
    size = sum(len(render(*message)) for message in opening)
    while size < target_chars:
        if rng.random() < 0.3:
            name, text = rng.choice(sources)
        budget = min(MAX_RESULT_CHARS, round(rng.lognormvariate(math.log(MEDIAN_RESULT_CHARS), SPREAD)))
        call, result = rng.choice(_TOOLS)(rng, name, text, budget)
        thought = rng.choice(_THOUGHTS).format(name=name, word=_word(rng, text))
        said = f"{thought}\n\n<call>{call}</call>"
        # The last result is cut, so that the last request is as long as was asked for and no longer.
        room = target_chars - size - len(render(ASSISTANT, said) + render("tool", "") + GENERATION_PROMPT)
        if room <= 0:
            break
        yield ASSISTANT, said
        yield "tool", result[:room]
        size += len(render(ASSISTANT, said) + render("tool", result[:room]))
        task = rng.choice(_TASKS).format(name=name)
        if rng.random() < 0.04 and size + len(render("user", task) + GENERATION_PROMPT) < target_chars:
            yield "user", task
            size += len(render("user", task))
    yield ASSISTANT, f"Done: {name} is fixed and the tests pass."


def _read(rng: random.Random, name: str, text: str, budget: int) -> tuple[str, str]:
    lines = text.split("\n")
    start = rng.randrange(max(1, len(lines) - 10))
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines[start:], start=start + 1):
        if size >= budget:
            break
        shown.append(f"{number:6}\t{line}")
        size += len(line) + 8
    return f'read("{name}", {start + 1}, {start + len(shown)})', "\n".join(shown)


def _grep(rng: random.Random, name: str, text: str, budget: int) -> tuple[str, str]:
    word = _word(rng, text)
    hits = [f"{name}:{n}:{line}" for n, line in enumerate(text.split("\n"), start=1) if word in line]
    return f'grep("{word}", "{name}")', "\n".join(hits)[:budget] or "(no matches)"


def _list(rng: random.Random, name: str, text: str, budget: int) -> tuple[str, str]:
    words = _words(rng, text)
    rows = (f"-rw-r--r--  {rng.randrange(300, 90_000):>7}  {rng.choice(words)}_{n}.py" for n in range(400))
    return f'list("{Path(name).stem}/")', "\n".join(rows)[:budget]


def _edit(rng: random.Random, name: str, text: str, budget: int) -> tuple[str, str]:
    lines = text.split("\n")
    start = rng.randrange(max(1, len(lines) - 60))
    old = lines[start : start + max(3, min(60, budget // 60))]
    word = _word(rng, text)
    new = [line.replace(word, f"{word}_checked") if rng.random() < 0.5 else line for line in old]
    new.insert(rng.randrange(len(new)), f"    if {word} is None:\n        raise ValueError('{word} is missing')")
    diff = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")
    return f'edit("{name}", …)', "\n".join(diff)[: budget + 400] or "(nothing changed)"


def _run(rng: random.Random, name: str, text: str, budget: int) -> tuple[str, str]:
    stem = Path(name).stem
    words = _words(rng, text)
    rows: list[str] = []
    size = 0
    while size < min(budget, 6_000):
        dots = "." * rng.randrange(8, 60)
        rows.append(f"tests/test_{stem}.py::test_{rng.choice(words)}_{rng.randrange(1000)} {dots} PASSED")
        size += len(rows[-1]) + 1
    seconds = rng.randrange(20, 4_000) / 100
    return f'run("pytest tests/test_{stem}.py")', "\n".join([*rows, f"{len(rows)} passed in {seconds:.2f}s ✓"])


def _word(rng: random.Random, text: str) -> str:
    return rng.choice(_words(rng, text))


def _words(rng: random.Random, text: str) -> list[str]:
    """Words of some place of the file; never empty."""
    start = rng.randrange(max(1, len(text) - 2_000))
    return re.findall(r"[a-z_]{4,24}", text[start : start + 2_000]) or ["value"]


_TOOLS: tuple[_Tool, ...] = (_read, _read, _read, _grep, _list, _edit, _edit, _run)
