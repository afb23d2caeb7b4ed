"""The whole pipeline inside a Python program: no broker to install, no process to start.

import asyncio
from cli.embedded import embedded

async def main() -> None:
    async with embedded(["gpt2"]) as client:
        session = client.session("conversation-7", "gpt2")
        await session.append("You are a helpful agent.")
        answer = await session.append(" Hello!")     # only the new text travels
        print(session.ids, answer.route)             # all ids, numpy u32; how exactness was assured

asyncio.run(main())
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from cli.wiring import MEMORY_URL, choose_tokenizer, make_broker, make_workers, open_registry, running, worker_settings
from pipeline.client import Client
from pipeline.settings import ClientSettings, from_env
from toksplice.registry import Registry
from toksplice.sources import BUILT_IN


@asynccontextmanager
async def embedded(
    tokenizer_names: Sequence[str] = (BUILT_IN,),
    registry: Registry | str | os.PathLike[str] | None = None,
    state: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Client]:
    """Every worker on a memory broker in this process, and a client of them.

    `tokenizer_names` are loaded before the block begins, so that no request waits for them; other registered names
    can be used too. `registry` is a registry, its folder, or None for the user's own. With `state`, a folder,
    sessions are kept there between runs. Settings come from the environment, as for the command.

    An exception of the block stops the workers gracefully and is raised again. A worker that fails cancels the
    block; its error is raised in an ExceptionGroup. Raises `UnknownTokenizerError` for a name that is not registered
    and says how to get it, `TokenizerError` for a file that cannot be loaded, `SettingsError` for a wrong setting.
    """
    if isinstance(tokenizer_names, str):
        raise TypeError("tokenizer_names is a sequence of names, not one name")
    if not isinstance(registry, Registry):
        registry = open_registry(None if registry is None else Path(registry))
    await asyncio.to_thread(_load, registry, tokenizer_names)
    settings = worker_settings()
    client_settings = from_env(ClientSettings)
    folder = None if state is None else Path(state)
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    broker = make_broker(MEMORY_URL)
    failure: Exception | None = None
    async with (
        running(broker, make_workers(broker, registry, settings, folder), settings),
        Client(broker, settings.partitions, settings=client_settings) as client,
    ):
        try:
            yield client
        except Exception as error:
            # Held back until the workers have stopped: it is the caller's, not a worker's.
            failure = error
    if failure is not None:
        raise failure


def _load(registry: Registry, names: Sequence[str]) -> None:
    for name in names:
        registry.get(choose_tokenizer(registry, name).fingerprint)
