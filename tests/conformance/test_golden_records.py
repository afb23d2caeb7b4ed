"""The golden records: bytes that every version-1 reader and writer must agree on, in any language.

The files are made by tests/conformance/golden/regenerate.py, which also says when that is allowed.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

import schemas
from schemas.docs import MESSAGES
from schemas.message import Record

FOLDER = Path(__file__).parent / "golden"
CASES = json.loads((FOLDER / "golden.json").read_text(encoding="ascii"))["cases"]
NAMES = [case["file"] for case in CASES]


def _regenerate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_regenerate", FOLDER / "regenerate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REGENERATE = _regenerate()


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_decodes_to_the_described_value_and_encodes_back(case: dict[str, object]) -> None:
    data = (FOLDER / str(case["file"])).read_bytes()
    message = getattr(schemas, str(case["message"])).decode(data)
    assert REGENERATE.as_json(message) == case["value"]
    assert message.encode() == data


def test_files_are_those_of_the_regenerate_script() -> None:
    assert {f"{name}.msgpack": message.encode() for name, message in REGENERATE.CASES.items()} == {
        path.name: path.read_bytes() for path in FOLDER.glob("*.msgpack")
    }
    assert sorted(NAMES) == sorted(path.name for path in FOLDER.glob("*.msgpack"))


def test_every_kind_of_record_has_several_files() -> None:
    for message in MESSAGES.values():
        if issubclass(message, Record):
            assert sum(case["message"] == message.__name__ for case in CASES) >= 2, message
