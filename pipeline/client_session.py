"""One session as its client sees it: text, ids, and the calls that change them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline.client_state import (
    Answer,
    IdBuffer,
    Ids,
    Splice,
    difference,
    encode_text,
    inconsistent,
    new_request_id,
    raise_for_failure,
)
from pipeline.errors import ClosedError, RecordTooLargeError, ReplyError
from schemas.codes import Status
from schemas.reply import Reply
from schemas.request import Base, Op, Request, Want

if TYPE_CHECKING:
    from pipeline.client import Client


class ClientSession:
    """A session; make one with `Client.session`.

        session = client.session("conversation-7", "qwen3")
        answer = await session.append("Hello")
        answer = await session.splice(0, 5, "Good day", deadline_s=2)
        answer = await session.update(whole_text)      # sends only what differs
        copy = await session.fork("conversation-7b")

    The client holds the text, so what a worker has lost is mended here: when the pipeline no longer has the
    session, or has it in another state, the whole text is sent once and the call goes on. Positions and
    lengths are UTF-8 bytes. Calls on one session run one after the other, in the order they were made.

    A call that fails leaves `text` and `ids` as they were. After one that was cancelled or ran into its
    deadline nobody knows whether the pipeline carried it out, so the next call sends the whole text.
    """

    def __init__(self, client: Client, session_id: str, tokenizer: str, add_special_tokens: bool) -> None:
        self.session_id = session_id
        self.tokenizer = tokenizer
        self.add_special_tokens = add_special_tokens
        self._client = client
        self._lock = asyncio.Lock()
        self._text = bytearray()
        self._ids = IdBuffer()
        self._base: Base | None = None
        self._closed = False

    @property
    def text(self) -> str:
        """The whole text; decoded at each use."""
        return self._text.decode()

    @property
    def length(self) -> int:
        """UTF-8 bytes of the text."""
        return len(self._text)

    @property
    def ids(self) -> Ids:
        """All ids, u32 of shape (n,), read-only and without a copy: take a copy to keep them past the next
        call."""
        return self._ids.view

    @property
    def revision(self) -> int:
        """Revision of the state that the pipeline is known to have; 0 when that is not known."""
        return 0 if self._base is None else self._base.revision

    @property
    def epoch(self) -> int:
        """Epoch of the state that the pipeline is known to have; 0 when that is not known."""
        return 0 if self._base is None else self._base.epoch or 0

    # Changes

    async def append(self, text: str, *, offsets: bool = False, deadline_s: float | None = None) -> Answer:
        """Add `text` at the end. The first append makes the session."""
        insert = encode_text(text)
        return await self._change(
            "append", lambda: Splice(len(self._text), len(self._text), insert), offsets, deadline_s
        )

    async def splice(
        self, start: int, end: int, text: str, *, offsets: bool = False, deadline_s: float | None = None
    ) -> Answer:
        """Replace bytes [start, end) by `text`. Raises ReplyError bad_position for positions inside a
        character."""
        insert = encode_text(text)
        return await self._change("splice", lambda: Splice(start, end, insert), offsets, deadline_s)

    async def truncate(self, length: int, *, offsets: bool = False, deadline_s: float | None = None) -> Answer:
        """Keep the first `length` bytes."""
        return await self._change("truncate", lambda: Splice(length, len(self._text), b""), offsets, deadline_s)

    async def update(self, text: str, *, offsets: bool = False, deadline_s: float | None = None) -> Answer:
        """Make `text` the whole text. What differs from the present one is found here, and only that is
        sent."""
        new = encode_text(text)
        return await self._change("update", lambda: difference(self._text, new), offsets, deadline_s)

    async def fork(self, session_id: str, *, deadline_s: float | None = None) -> ClientSession:
        """A copy under another id, in the same tenant, from then on a session of its own."""
        child = self._client.session(session_id, self.tokenizer, self.add_special_tokens)

        async def call(deadline_ms: int) -> ClientSession:
            async with self._lock:
                self._check_open()
                await self._fork_into(child, deadline_ms)
            return child

        return await self._client.bounded("fork", call, deadline_s)

    async def close(self, *, deadline_s: float | None = None) -> None:
        """End the session; the pipeline frees its memory. The object cannot be used afterwards."""

        async def call(deadline_ms: int) -> None:
            async with self._lock:
                if self._closed:
                    return
                self._base = None
                reply = await self._client.exchange(self._request(Op.CLOSE, deadline_ms))
                if reply.status is not Status.NEED_TEXT:
                    raise_for_failure(reply)
                self._closed = True

        await self._client.bounded("close", call, deadline_s)

    # Internals

    async def _change(self, name: str, make: Callable[[], Splice], offsets: bool, deadline_s: float | None) -> Answer:
        async def call(deadline_ms: int) -> Answer:
            async with self._lock:
                self._check_open()
                # Only now is the text known that the change applies to.
                splice = make()
                splice.check(self._text)
                return await self._carry_out(splice, offsets, deadline_ms)

        return await self._client.bounded(name, call, deadline_s)

    async def _carry_out(self, splice: Splice, offsets: bool, deadline_ms: int) -> Answer:
        """Send the change alone if the pipeline has the text, and the whole text if it has not; at most one
        of each."""
        base, resent = self._base, False
        # Until the reply is here the state is unknown: whatever interrupts this leaves it so.
        self._base = None
        if base is not None:
            try:
                reply = await self._client.exchange(self._delta(splice, base, deadline_ms, offsets=offsets))
            except (ReplyError, RecordTooLargeError):
                self._base = base  # Nothing was sent.
                raise
            if reply.status not in (Status.NEED_TEXT, Status.CONFLICT):
                # A refusal leaves the session as it was; if not, epoch and revision will show it.
                self._base = None if reply.status is Status.EXPIRED else base
                raise_for_failure(reply)
                if self._follows(reply, base, splice):
                    return self._apply(reply, splice, resent=False)
                self._base = None
            self._client.count_resend(reply.status.value if reply.code else "inconsistent")
            resent = True
        text = splice.applied(self._text)
        reply = raise_for_failure(
            await self._client.exchange(
                self._request(Op.TEXT, deadline_ms, text=text.decode(), want=Want.IDS, offsets=offsets)
            )
        )
        if reply.length != len(text) or reply.keep_left or reply.keep_right:
            raise inconsistent(reply)
        return self._apply(reply, splice, resent=resent)

    def _follows(self, reply: Reply, base: Base, splice: Splice) -> bool:
        """Whether the reply is about the next state of the text and ids that are held here.

        Its epoch may be a new one: the worker compared the base's before it made the change.
        """
        return (
            reply.revision == base.revision + 1
            and reply.length == splice.length_after(len(self._text))
            and reply.keep_left + reply.keep_right <= len(self._ids)
        )

    def _apply(self, reply: Reply, splice: Splice, *, resent: bool) -> Answer:
        answer = Answer.of(reply, self._ids.view, resent=resent)
        self._ids.patch(answer.keep_left, answer.ids, answer.keep_right)
        self._text[splice.start : splice.end] = splice.insert
        self._base = _base(reply)
        return answer

    async def _fork_into(self, child: ClientSession, deadline_ms: int) -> None:
        reply = None
        if self._base is not None:
            # A fork does not change this session, so its state stays known whatever happens.
            request = self._request(Op.FORK, deadline_ms, base=self._base, new_session=child.session_id)
            reply = await self._client.exchange(request)
            if reply.status not in (Status.NEED_TEXT, Status.CONFLICT):
                raise_for_failure(reply)
        child._text = bytearray(self._text)
        child._ids = IdBuffer(self._ids.view)
        if reply is not None and reply.status is Status.OK and reply.length == len(self._text):
            child._base = _base(reply)
            return
        self._base = None
        self._client.count_resend("fork")
        nothing = Splice(len(child._text), len(child._text), b"")
        await child._carry_out(nothing, False, deadline_ms)

    def _delta(self, splice: Splice, base: Base, deadline_ms: int, *, offsets: bool) -> Request:
        """The shortest op that says the change."""
        if splice.end == len(self._text) and not splice.insert and splice.start < splice.end:
            return self._request(Op.TRUNCATE, deadline_ms, base=base, length=splice.start, offsets=offsets)
        text = splice.insert.decode()
        if splice.start == splice.end == len(self._text):
            return self._request(Op.APPEND, deadline_ms, base=base, text=text, offsets=offsets)
        return self._request(
            Op.SPLICE,
            deadline_ms,
            base=base,
            text=text,
            start=splice.start,
            end=splice.end,
            offsets=offsets,
        )

    def _request(self, op: Op, deadline_ms: int, **fields: Any) -> Request:
        return Request(
            request_id=new_request_id(),
            tenant=self._client.tenant,
            session_id=self.session_id,
            tokenizer=self.tokenizer,
            add_special_tokens=self.add_special_tokens,
            op=op,
            deadline_ms=deadline_ms,
            **fields,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the session was closed")


def _base(reply: Reply) -> Base | None:
    """The state that a reply tells of; None when it tells of none."""
    if not reply.revision:
        return None
    return Base(revision=reply.revision, length=reply.length, epoch=reply.epoch or None)
