"""Settings: parsing, errors, and documentation that cannot fall behind."""

from __future__ import annotations

import dataclasses
import doctest
import math
from typing import Any

import pytest

from pipeline import settings as settings_module
from pipeline.errors import SettingsError
from pipeline.settings import (
    PREFIX,
    SETTINGS_CLASSES,
    ClientSettings,
    TelemetrySettings,
    WorkerSettings,
    from_env,
    render_table,
    setting,
    specs,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    name: str = setting("", env="TOKSPLICE_NAME", unit="", doc="A name.")
    count: int = setting(3, env="TOKSPLICE_COUNT", unit="things", doc="A count.", minimum=1, maximum=9)
    share: float = setting(0.5, env="TOKSPLICE_SHARE", unit="share", doc="A share.", minimum=0)
    flag: bool = setting(False, env="TOKSPLICE_FLAG", unit="", doc="A switch.")
    key: str = setting("", env="TOKSPLICE_KEY", unit="", doc="A key.", secret=True)
    secret_count: int = setting(1, env="TOKSPLICE_SECRET_COUNT", unit="", doc="Odd.", secret=True)


def test_nothing_set_means_the_defaults() -> None:
    assert from_env(Example, {}) == Example()
    assert from_env(Example, {"TOKSPLICE_COUNT": " "}) == Example()
    for cls in SETTINGS_CLASSES:
        assert from_env(cls, {}) == cls()


def test_values_are_parsed_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {
        "TOKSPLICE_NAME": "x",
        "TOKSPLICE_COUNT": "9",
        "TOKSPLICE_SHARE": "2.5",
        "TOKSPLICE_FLAG": "Yes",
        "TOKSPLICE_KEY": "k",
    }
    expected = Example(name="x", count=9, share=2.5, flag=True, key="k")
    assert from_env(Example, environ) == expected
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert from_env(Example) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("COUNT", "x", "not a whole number"),
        ("COUNT", "1.5", "not a whole number"),
        ("COUNT", "0", "between 1 and 9"),
        ("COUNT", "10", "between 1 and 9"),
        ("SHARE", "-1", "at least 0"),
        ("SHARE", "nan", "at least 0"),
        ("SHARE", "inf", "at least 0"),
        ("SHARE", "x", "not a number"),
        ("FLAG", "maybe", "not a switch"),
    ],
)
def test_a_bad_value_is_named_with_its_remedy(name: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_env(Example, {f"TOKSPLICE_{name}": value})
    assert f"TOKSPLICE_{name}: {value!r}" in str(caught.value)
    assert expected in str(caught.value)


def test_all_bad_values_are_one_error_and_secrets_are_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        from_env(Example, {"TOKSPLICE_COUNT": "x", "TOKSPLICE_SECRET_COUNT": "hunter2"})
    message = str(caught.value)
    assert "TOKSPLICE_COUNT" in message
    assert "TOKSPLICE_SECRET_COUNT" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("cls", SETTINGS_CLASSES)
def test_every_setting_is_documented(cls: type[Any]) -> None:
    for name, spec in specs(cls).items():
        assert spec.env.startswith((PREFIX, "OTEL_")), name
        assert spec.doc.endswith("."), name
        assert len(spec.doc) > 20, name
        default = getattr(cls(), name)
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert spec.unit, f"{name} needs a unit"
            assert spec.minimum is not None, f"{name} needs a bound"
            assert not math.isnan(default)
        for suffix, unit in (("_s", "seconds"), ("_bytes", "bytes")):
            assert not name.endswith(suffix) or spec.unit == unit, name


def test_no_variable_is_used_twice() -> None:
    names = [spec.env for cls in SETTINGS_CLASSES for spec in specs(cls).values()]
    assert len(names) == len(set(names))


def test_the_table_has_every_setting() -> None:
    table = render_table(WorkerSettings, ClientSettings, TelemetrySettings)
    for cls in SETTINGS_CLASSES:
        for spec in specs(cls).values():
            assert f"| `{spec.env}` |" in table
            assert spec.doc in table
    assert render_table(Example).splitlines()[3] == "| `TOKSPLICE_COUNT` | `3` | things | A count. |"
    assert "| `TOKSPLICE_FLAG` | `false` |" in render_table(Example)
    assert all(line.count("|") == 5 for line in table.splitlines())


def test_a_field_without_a_declaration_is_an_error() -> None:
    @dataclasses.dataclass(frozen=True)
    class Undeclared:
        name: str = ""

    with pytest.raises(KeyError):
        specs(Undeclared)


def test_the_examples_in_the_documentation_run() -> None:
    results = doctest.testmod(settings_module)
    assert results.attempted
    assert not results.failed
