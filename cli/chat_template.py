"""The one chat template that `replay` renders sessions with (ChatML).

Message:            <|im_start|>ROLE\\nTEXT<|im_end|>\\n
Generation prompt:  <|im_start|>assistant\\n

A request goes out before each assistant message; its text is every message so far plus the generation
prompt. The rendered assistant message begins with that same prompt, so each request's text continues the
one before it, and what is new can be sent as one append.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

ASSISTANT = "assistant"
GENERATION_PROMPT = f"<|im_start|>{ASSISTANT}\n"


def render(role: str, text: str) -> str:
    """One message as the model sees it."""
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def request_deltas(messages: Iterable[tuple[str, str]]) -> Iterator[str]:
    """For each request of a session, the text that is new since the request before it.

    Joined, the first n results are the n-th request's whole text.
    """
    pending: list[str] = []
    for role, text in messages:
        if role != ASSISTANT:
            pending.append(render(role, text))
            continue
        yield "".join(pending) + GENERATION_PROMPT
        # The prompt went out with the request that this message answers: only the rest of it is new.
        pending = [render(role, text).removeprefix(GENERATION_PROMPT)]
