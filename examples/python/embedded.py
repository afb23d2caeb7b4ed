"""The whole pipeline in one process, with a tokenizer that needs no download: python examples/python/embedded.py"""

import asyncio
import sys

from cli.embedded import embedded
from pipeline.client import ClientSession


def show(what: str, session: ClientSession) -> None:
    sys.stdout.write(f"{what}: {session.text!r} -> {session.ids.tolist()}\n")


async def main() -> None:
    async with embedded(["gpt2"]) as client:
        session = client.session("conversation-7", "gpt2")
        await session.append("Once upon a time")
        answer = await session.append(", there was a tokenizer.")
        show(f"appended, {answer.keep_left} ids kept", session)
        await session.splice(0, len(b"Once upon"), "Twice upon")  # positions are UTF-8 bytes
        show("spliced", session)
        copy = await session.fork("conversation-7b")
        await copy.append(" The end.")
        show("forked", copy)
        show("the original", session)


if __name__ == "__main__":
    asyncio.run(main())
