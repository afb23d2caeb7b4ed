"""docs/protocol.md says what the field tables say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas import docs, topics
from schemas.codes import Code, Status

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"


def test_the_page_is_up_to_date() -> None:
    assert docs.main(["--check", str(PAGE)]) == 0, "run python -m schemas.docs --write"


def test_the_page_names_every_code_status_and_topic() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for word in (*Code, *Status, *topics.ALL):
        assert f"`{word}`" in page


def test_check_finds_a_stale_page_and_write_mends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "protocol.md"
    whole = PAGE.read_text(encoding="utf-8")
    page.write_text(whole.replace("at most 64 bytes", "at most 65 bytes"), encoding="utf-8")
    assert docs.main(["--check", str(page)]) == 1
    assert "--write" in capsys.readouterr().err
    assert docs.main(["--write", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<!-- generated: codes -->", "<!-- generated: unheard-of -->"),
        ("<!-- generated: codes -->", ""),
        ("<!-- generated: base -->", "<!-- generated: codes -->"),
    ],
)
def test_a_wrong_set_of_blocks_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    page = tmp_path / "protocol.md"
    page.write_text(PAGE.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert docs.main(["--check", str(page)]) == 2
    assert "exactly once" in capsys.readouterr().err


def test_a_page_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--check", str(tmp_path / "none.md")]) == 2
    assert capsys.readouterr().err


def test_the_vectors_for_other_languages_are_right() -> None:
    page = PAGE.with_name("other-languages.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `?(.*?)`? ?\| `(.+?)` \| `([0-9a-f]+)` \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for tenant, session_id, key_hex, murmur2, partition in rows:
        key = topics.session_key(tenant, session_id)
        assert key.hex() == key_hex
        assert topics.murmur2(key) == int(murmur2)
        assert topics.partition_for(key, 12) == int(partition)
