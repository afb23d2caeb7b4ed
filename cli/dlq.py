"""`toksplice dlq list | replay`: what no worker could deal with, and giving it another chance."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from cli.errors import CliError, ExitCode
from cli.options import positive
from cli.output import note, progress_bar, stdout, write_json, written_time
from cli.topics import records_of, remote
from cli.wiring import add_broker_argument, connected, worker_settings
from pipeline.ports import Broker, Record
from pipeline.runtime import run as run_loop
from schemas.deadletter import DeadLetter
from schemas.errors import ProtocolError
from schemas.topics import DLQ, REQUESTS

DEFAULT_LIMIT = 100

_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter and where it lies in tokenize.dlq, as PARTITION:OFFSET."""

    partition: int
    offset: int
    letter: DeadLetter

    @property
    def place(self) -> str:
        return f"{self.partition}:{self.offset}"

    def describe(self) -> dict[str, Any]:
        """All but the record's content, which is a user's text."""
        letter = self.letter
        return {
            "place": self.place,
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "code": str(letter.code),
            "error": letter.error,
            "attempt": letter.attempt,
            "time": written_time(letter.time_ms),
            "worker": letter.worker,
            "value_bytes": len(letter.value),
            "clipped": letter.clipped,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    lister = actions.add_parser("list", help="show dead letters, the newest first")
    lister.add_argument("--limit", type=positive, default=DEFAULT_LIMIT, metavar="N", help="default 100")
    lister.set_defaults(run=run_list)
    again = actions.add_parser(
        "replay",
        help="write dead letters to the topic they came from",
        description="Writes dead letters to the topic they came from. They stay in tokenize.dlq as well.",
    )
    again.add_argument("places", nargs="*", metavar="PARTITION:OFFSET", type=_place, help="as `dlq list` shows")
    again.add_argument("--all", action="store_true", help="every dead letter")
    again.set_defaults(run=run_replay)
    for sub in (lister, again):
        add_broker_argument(sub, default=None)
        sub.add_argument("--json", action="store_true", help="write JSON to stdout")


def run_list(options: argparse.Namespace) -> int:
    letters = run_loop(_list(options.broker))
    letters.sort(key=lambda one: -one.letter.time_ms)
    shown = letters[: options.limit]
    if options.json:
        write_json({"total": len(letters), "letters": [one.describe() for one in shown]})
        return ExitCode.OK
    table = Table(title=f"{len(letters):,} dead letters")
    for column in ("place", "time", "from", "code", "tries", "bytes", "error"):
        table.add_column(column, justify="right" if column in ("tries", "bytes") else "left")
    for one in shown:
        facts = one.describe()
        size = f"{facts['value_bytes']:,}"
        table.add_row(
            one.place, facts["time"], facts["topic"], facts["code"], str(facts["attempt"]), size, facts["error"]
        )
    stdout().print(table, markup=False)
    return ExitCode.OK


def run_replay(options: argparse.Namespace) -> int:
    if bool(options.places) == options.all:
        raise CliError(ExitCode.USAGE, "name dead letters as PARTITION:OFFSET, or use --all")
    sent, left_out = run_loop(_replay(options.broker, None if options.all else set(options.places)))
    if options.json:
        write_json({"replayed": sent, "left_out": left_out})
    else:
        stdout().print(f"{len(sent):,} dead letters replayed", markup=False)
    for place, reason in left_out.items():
        note(f"{place}: {reason}")
    return ExitCode.CHECK_FAILED if left_out else ExitCode.OK


async def _list(url: str) -> list[Letter]:
    settings = worker_settings()
    async with connected(remote(url), settings) as broker:
        return [letter async for letter in _letters(broker, settings.partitions)]


async def _replay(url: str, wanted: set[_Place] | None) -> tuple[list[str], dict[str, str]]:
    """The places that were replayed, and those that were not with the reason."""
    settings = worker_settings()
    sent: list[str] = []
    left_out: dict[str, str] = {}
    missing = set(wanted or ())
    async with connected(remote(url), settings) as broker:
        producer = await broker.producer()
        with progress_bar("replaying", total=len(wanted) if wanted else None) as bar:
            async for one in _letters(broker, settings.partitions):
                missing.discard((one.partition, one.offset))
                if wanted is not None and (one.partition, one.offset) not in wanted:
                    continue
                letter = one.letter
                if letter.clipped:
                    left_out[one.place] = "its content was cut to fit and cannot be sent again"
                    continue
                # Requests are routed by their key; a record between workers must stay in its session's partition.
                partition = None if letter.topic == REQUESTS and letter.key else letter.partition
                await producer.send(
                    letter.topic, letter.value, key=letter.key, partition=partition, headers=letter.headers
                )
                sent.append(one.place)
                bar.advance()
    left_out |= {f"{partition}:{offset}": "there is no such dead letter" for partition, offset in sorted(missing)}
    return sent, left_out


async def _letters(broker: Broker, partitions: int) -> AsyncIterator[Letter]:
    """Every dead letter that is there now."""
    async for record in records_of(broker, DLQ, range(partitions), "the dead letters"):
        letter = _decode(record)
        if letter is not None:
            yield letter


def _decode(record: Record) -> Letter | None:
    try:
        return Letter(record.partition, record.offset, DeadLetter.decode(record.value or b""))
    except ProtocolError as error:
        note(f"{record.partition}:{record.offset} is no dead letter ({error})")
        return None


def _place(word: str) -> _Place:
    partition, _, offset = word.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise argparse.ArgumentTypeError(f"{word!r} is not PARTITION:OFFSET")
    return int(partition), int(offset)
