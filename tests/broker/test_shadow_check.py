"""A wrong answer, on both brokers: found, barred on every worker, kept, and mended at the client."""

from __future__ import annotations

from pathlib import Path as FilePath

import numpy as np
import pytest
from shadow_kit import TEXT, WrongLastId, right, stack

from pipeline.ports import Broker
from schemas.health import Control
from schemas.reply import Path, Route
from schemas.sample import DifferenceKind, Finding
from schemas.topics import CONTROL, QUARANTINE


@pytest.mark.parametrize("path", [Path.REPAIR, Path.CPU])
async def test_a_wrong_answer_is_found_barred_and_mended(
    path: Path, broker: Broker, tmp_path: FilePath, caplog: pytest.LogCaptureFixture
) -> None:
    fault = WrongLastId(path)
    async with stack(broker, tmp_path, faults=fault) as it:
        bystander = it.client.session("bystander", "test")
        if path is Path.REPAIR:
            await bystander.append(TEXT)
        session = it.client.session("s", "test")
        await session.append(TEXT)
        if path is Path.REPAIR:
            assert right(session)
            await session.append("and the fox ran.")
        assert not right(session), "the client has a wrong id by now"
        await it.breaker_is_open()
        await it.shadow.has_handled(3 if path is Path.REPAIR else 1)

        (found,) = [Finding.decode(value) for value in await it.records(QUARANTINE)]
        assert (found.sample.path, found.sample.route, found.kind) == (path, Route.A, DifferenceKind.SUBSTITUTED)
        assert found.sample.session_id == "s"
        assert np.array_equal(np.frombuffer(found.sample.ids, "<u4"), session.ids), "what the client has"
        assert it.count("mismatches", tokenizer="test", path=path.value, route="A", kind="substituted") == 1
        (control,) = {Control.decode(value) for value in await it.records(CONTROL)}
        assert (control.tokenizer, control.breaker_open) == (found.sample.fingerprint, True)
        assert [record.levelname for record in caplog.records if "WRONG ANSWER" in record.getMessage()] == ["ERROR"]

        # From here on the reference answers, in whole, and so the client has right ids again; fault or no fault.
        fault.path = Path.GPU
        for one in (session, bystander) if path is Path.REPAIR else (session,):
            answer = await one.append(" And on.")
            assert (answer.path, answer.route) == (Path.CPU, Route.D)
            assert right(one)
        later = await session.append(" And on, and on.")
        assert (later.route, later.reason) == (Route.D, "breaker_open")
        assert right(session)
        assert len(await it.records(QUARANTINE)) == 1
