"""The native engine's packaging: lock files, licences, the compiler it asks for, the shape of its sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
CARGO = tomllib.loads((NATIVE / "Cargo.toml").read_text())
NOTICES = NATIVE / "THIRD_PARTY.md"
#: Longest Rust module, in lines, as for Python.
MODULE_LINES_MAX = 500
#: What the engine may be linked with; where a licence leaves a choice, the first of these is taken.
LICENCES = ("Apache-2.0", "MIT", "BSD-2-Clause")
RUST_FILES = sorted(path for folder in ("src", "fuzz/fuzz_targets") for path in (NATIVE / folder).rglob("*.rs"))
needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is missing (https://rustup.rs)")


def locked(folder: Path) -> dict[str, set[str]]:
    """The versions of each crate that a lock file names."""
    versions: dict[str, set[str]] = {}
    for package in tomllib.loads((folder / "Cargo.lock").read_text())["package"]:
        versions.setdefault(package["name"], set()).add(package["version"])
    return versions


def linked_crates() -> list[tuple[str, str, str]]:
    """Name, version and licence expression of every crate whose code is in the extension module."""
    command = ["cargo", "tree", "--locked", "--quiet", "--edges", "normal,no-proc-macro", "--prefix", "none"]
    command += ["--no-dedupe", "--target", "x86_64-unknown-linux-gnu", "--format", "{p}|{l}"]
    done = subprocess.run(command, cwd=NATIVE, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    crates = {tuple(re.split(r" v|\|", line)) for line in done.stdout.splitlines() if "(/" not in line}
    return sorted((name, version, licence) for name, version, licence in crates)


def taken(licence: str) -> str:
    """The licence that is chosen from an expression without AND, in which the old slash means OR."""
    offered = re.split(r" OR |/", licence)
    return next((name for name in LICENCES if name in offered), f"not allowed: {licence}")


@needs_cargo
def test_the_notices_name_every_crate() -> None:
    """Write the table anew with: UPDATE_DOCS=1 python -m pytest tests/repo/test_native.py -k notices"""
    start, end = "<!-- generated: crates -->\n", "<!-- end of generated: crates -->"
    before, _, rest = NOTICES.read_text().partition(start)
    _, _, after = rest.partition(end)
    assert after, f"{NOTICES.name} lost its marks {start.strip()} and {end}"
    rows = [f"| {name} | {version} | {licence} | {taken(licence)} |\n" for name, version, licence in linked_crates()]
    table = "".join(["\n| crate | version | licence | taken |\n|---|---|---|---|\n", *rows, "\n"])
    wanted = f"{before}{start}{table}{end}{after}"
    if os.environ.get("UPDATE_DOCS"):
        NOTICES.write_text(wanted)
    assert NOTICES.read_text() == wanted, "the table of crates is out of step"


@needs_cargo
def test_licences_are_known_and_their_texts_are_here() -> None:
    crates = [(name, taken(licence)) for name, _, licence in linked_crates()]
    assert [crate for crate in crates if crate[1] not in LICENCES] == []
    text = NOTICES.read_text()
    assert [crate for crate in crates if crate[1] != "Apache-2.0" and f"## {crate[0]}, {crate[1]}\n" not in text] == []


def test_the_fuzzer_tests_what_is_shipped() -> None:
    shipped, fuzzed = locked(NATIVE), locked(NATIVE / "fuzz")
    ours = {dependency for dependency, spec in CARGO["dependencies"].items() if not optional(spec)}
    assert ours
    assert {name: fuzzed.get(name) for name in ours} == {name: shipped[name] for name in ours}


def optional(spec: str | dict[str, object]) -> bool:
    return isinstance(spec, dict) and bool(spec.get("optional"))


def test_the_readme_names_the_compiler() -> None:
    assert f"Rust {CARGO['package']['rust-version']} or newer" in (ROOT / "README.md").read_text()


def test_every_fuzz_target_is_declared() -> None:
    declared = {target["path"] for target in tomllib.loads((NATIVE / "fuzz/Cargo.toml").read_text())["bin"]}
    assert declared == {f"fuzz_targets/{path.name}" for path in (NATIVE / "fuzz/fuzz_targets").glob("*.rs")}


def test_rust_modules_are_short_and_tell_what_they_are() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in RUST_FILES}
    assert texts
    assert {name for name, text in texts.items() if len(text.splitlines()) > MODULE_LINES_MAX} == set()
    assert {name for name, text in texts.items() if not text.startswith("//!")} == set()
