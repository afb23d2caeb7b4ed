"""The report of a replay: one HTML page with nothing beside it, readable in light and dark."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from cli.errors import CliError, ExitCode
from cli.plots import Series, histogram, scatter
from cli.replay_job import Result
from cli.replay_run import Sample
from cli.replay_stats import CAPTION, COLUMNS, Summary, cells, sentences

_STYLE = """
:root { color-scheme: light dark; --page: #fdfdfc; --ink: #1d1d1f; --soft: #6b6b70; --rule: #dcdce0;
  --c0: #1f77b4; --c1: #d95f02; --c2: #1b9e77; --c3: #a6368f; --c4: #8a6d00; --c5: #666; --bad: #b00020; }
@media (prefers-color-scheme: dark) { :root { --page: #16171a; --ink: #ececf0; --soft: #a0a0a8; --rule: #35363c;
  --c0: #6db3e8; --c1: #ff9d5c; --c2: #57d0a8; --c3: #e08ad0; --c4: #e0c050; --c5: #aaa; --bad: #ff6b7d; } }
body { background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--rule); text-align: right; }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--rule); } .diagonal { stroke: var(--soft); stroke-dasharray: 4 4; }
.dot { fill-opacity: .55; } .s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); }
.s3 { --c: var(--c3); } .s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--ink); }
.joined { fill: none; stroke: var(--c); stroke-width: 1.2; }
.dot, .bar { fill: var(--c); } .legend { color: var(--soft); font-size: .85rem; } .key { margin-right: 1.2rem; }
.key i { display: inline-block; width: .7em; height: .7em; border-radius: 50%; background: var(--c);
  margin-right: .4em; } .bad { color: var(--bad); font-weight: 600; } .wide { overflow-x: auto; }
footer { color: var(--soft); font-size: .85rem; margin-top: 3rem; overflow-wrap: anywhere; }
@media (max-width: 44rem) { table { font-size: .7rem; } th, td { padding: .3rem .2rem; }
  svg text { font-size: 16px; } }
"""

_STYLES = 6
_REFERENCE_STYLE = 6
_WORK_NOTE = (
    "On the dashed line exactly what is new is tokenized. A splice lies just above it; a first request "
    "lies on it, since all of it is new."
)
_LATENCY_NOTE = (
    "Latency is the client's, from call to answer. The line is what it replaces: the reference alone on whole "
    "texts, measured on texts of these requests."
)
_FOOTER = (
    "Routes A and B are the native engine, resumed where the text changed. Route C is a certified window of the "
    "reference, route D the reference on the whole text."
)


def write_report(path: Path, result: Result, *, title: str) -> None:
    """Write the page. Raises `CliError` (STORAGE)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(result, title=title), encoding="utf-8")
    except OSError as error:
        raise CliError(ExitCode.STORAGE, f"{path}: cannot be written ({error.strerror})") from error


def render(result: Result, *, title: str) -> str:
    """The page as a string."""
    summary = result.summary
    samples = result.recording.samples
    latency = _series(samples, lambda s: (max(1, s.context_chars), s.latency_us / 1e3))
    if result.reference.measured:
        full = [(max(1.0, chars), seconds * 1e3) for chars, seconds in result.reference.measured]
        latency.append(Series("reference on the whole text", _REFERENCE_STYLE, full, joined=True))
    work = _series(samples, lambda s: (max(1, s.delivered_chars), max(1, s.encoded_chars)))
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(summary))
    verdict = "" if summary.ok else '<p class="bad">This replay failed: see the last lines of the list.</p>'
    size = f"{summary.sessions} sessions, {summary.requests:,} requests, tokenizer {escape(summary.tokenizer)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{size}, {summary.wall_s:,.1f} s from the first request to the last answer.</p>",
        verdict,
        f"<ul>{said}</ul>",
        _table(summary),
        "<h2>Latency by length of the context, and what the whole text takes</h2>",
        scatter(latency, x_label="characters of context", y_label="ms"),
        f"<p>{_LATENCY_NOTE}</p>",
        "<h2>Characters tokenized for the characters delivered</h2>",
        scatter(work, x_label="characters delivered", y_label="characters tokenized", diagonal=True),
        f"<p>{_WORK_NOTE}</p>",
        "<h2>Distribution of latencies</h2>",
        histogram(_series(samples, lambda s: (s.latency_us / 1e3, 0)), x_label="latency, ms"),
        f"<footer>Tokenizer fingerprint {escape(summary.fingerprint)}. {_FOOTER}</footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _series(samples: list[Sample], point: Callable[[Sample], tuple[float, float]]) -> list[Series]:
    """The samples by path and route, the most frequent first, so that colours mean the same in every plot."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(f"{sample.path}, route {sample.route}", []).append(sample)
    order = sorted(groups, key=lambda name: (-len(groups[name]), name))
    return [
        Series(name, number % _STYLES, [point(sample) for sample in groups[name]]) for number, name in enumerate(order)
    ]


def _table(summary: Summary) -> str:
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in cells(row)) for row in summary.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div><p class="legend">{CAPTION}</p>'
