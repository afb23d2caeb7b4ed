"""`toksplice shadow clear`: closes breakers, which nothing else does."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from cli.errors import CliError, ExitCode
from cli.output import note, stdout, write_json
from cli.quarantine.breakers import open_breakers
from cli.topics import remote
from cli.wiring import connected, open_registry, worker_settings
from pipeline.ports import Broker
from pipeline.runtime import run as run_loop
from schemas.health import ALL_TOKENIZERS, Control
from schemas.topics import CONTROL
from toksplice.errors import UnknownTokenizerError
from toksplice.registry import Registry


def run_clear(options: argparse.Namespace) -> int:
    if bool(options.tokenizer) == options.all:
        raise CliError(ExitCode.USAGE, "name a tokenizer, or use --all")
    if not options.yes and not sys.stdin.isatty():
        raise CliError(ExitCode.USAGE, "closing a breaker puts a doubted engine back to work: say --yes")
    registry = open_registry(options.registry)
    closed, left = run_loop(_clear(options, registry))
    if options.json:
        write_json({"closed": [_describe(registry, one) for one in closed], "open": [*left]})
    elif not closed:
        stdout().print("no breaker was closed", markup=False)
    for one in closed if not options.json else ():
        stdout().print(f"closed: {_describe(registry, one)['tokenizer']}", markup=False)
    if ALL_TOKENIZERS in left and closed:
        note('the breaker for all tokenizers ("*") is open still, and bars each of them')
    return ExitCode.OK


async def _clear(options: argparse.Namespace, registry: Registry) -> tuple[list[Control], list[str]]:
    """The breakers that were closed, as they were, and the tokenizers of those that are open still."""
    settings = worker_settings()
    async with connected(remote(options.broker), settings) as broker:
        found = await open_breakers(broker, settings.partitions)
        wanted = list(found) if options.all else [_fingerprint(registry, options.tokenizer)]
        doomed = [found[one] for one in wanted if one in found]
        if not doomed or (not options.yes and not _agreed(registry, doomed)):
            return [], list(found)
        await close_breakers(broker, doomed)
    return doomed, [one for one in found if one not in wanted]


async def close_breakers(broker: Broker, controls: list[Control]) -> None:
    """Write that these breakers are closed; the rate of sampling stays."""
    producer = await broker.producer()
    try:
        for control in controls:
            record = replace(control, breaker_open=False)
            await producer.send(CONTROL, record.encode(), key=control.tokenizer.encode())
    finally:
        await producer.stop()


def _agreed(registry: Registry, controls: list[Control]) -> bool:
    names = ", ".join(_describe(registry, control)["tokenizer"] for control in controls)
    note(f"open: {names}. The engine that gave wrong answers will answer again. Close? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _fingerprint(registry: Registry, name: str) -> str:
    """The fingerprint of a registered tokenizer; any other name is taken for one, since a breaker may be open for a
    tokenizer that this machine does not have."""
    try:
        return registry.resolve(name)
    except UnknownTokenizerError:
        return name


def _describe(registry: Registry, control: Control) -> dict[str, str]:
    name = "all tokenizers" if control.tokenizer == ALL_TOKENIZERS else registry.name_of(control.tokenizer)
    return {"tokenizer": name or control.tokenizer, "fingerprint": control.tokenizer}
