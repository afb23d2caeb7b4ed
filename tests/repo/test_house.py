"""The repository itself: packaging, documents, layering of what is loaded, tidiness."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["maturin"]["python-packages"]
#: Longest module, in lines; tables of data count too.
MODULE_LINES_MAX = 500
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    path
    for folder in ("docs", "ops", "tests", "benchmarks", "examples", "native", *PACKAGES)
    for path in (ROOT / folder).rglob("*.md")
    if not {"node_modules", "target"} & set(path.parts)
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in the wheel that this checkout builds."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    # The build back end calls the program maturin, which is beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built).namelist()


def test_the_wheel_holds_every_module(wheel: list[str]) -> None:
    missing = [
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if (name := str(path.relative_to(ROOT))) not in wheel
    ]
    assert missing == []


def test_the_wheel_holds_nothing_else(wheel: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
    assert any(name.endswith("licenses/native/THIRD_PARTY.md") for name in wheel)


def test_the_wheel_holds_the_native_engine(wheel: list[str]) -> None:
    assert [name for name in wheel if name.endswith(".so")] == ["toksplice/_native.abi3.so"]
    assert "toksplice/_native.pyi" in wheel


def test_every_typed_package_says_so() -> None:
    assert [
        package for package in ("schemas", "toksplice", "pipeline") if not (ROOT / package / "py.typed").exists()
    ] == []


def test_dependencies_are_pinned_exactly() -> None:
    pinned = re.compile(r"[a-zA-Z0-9_-]+(\[[a-z]+\])?==[0-9][0-9a-z.]*")
    listed = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    assert [line for line in listed if not pinned.fullmatch(line)] == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("toksplice", ("aiokafka", "opentelemetry", "cupy", "msgpack", "rich", "pipeline", "schemas")),
        ("schemas", ("numpy", "tokenizers", "aiokafka", "opentelemetry", "toksplice", "pipeline")),
        ("cli.main", ("cupy", "aiokafka", "opentelemetry.sdk")),
    ],
)
def test_importing_stays_light(module: str, absent: tuple[str, ...]) -> None:
    code = f"import {module}, sys; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:", "mailto:")):
            continue
        found = page if not path else (page.parent / path)
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_modules_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > MODULE_LINES_MAX
    }
    assert long == {}


def test_every_package_tells_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not path.read_text().startswith('"""')
    ]
    assert silent == []


def test_the_readme_names_the_commands_that_exist() -> None:
    from cli.main import COMMANDS

    readme = (ROOT / "README.md").read_text()
    (listed,) = re.findall(r"`toksplice ((?:\w+ \| )+\w+)`", readme)
    assert set(listed.split(" | ")) == set(COMMANDS)


def test_make_targets_of_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)\b", page.read_text())}
    # "make" is an English word too: only what looks like a command, in a code block or between backticks.
    commands = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), flags=re.MULTILINE)
    }
    assert commands <= targets
    assert {"demo", "test"} <= named


def test_the_protocol_lists_every_reason() -> None:
    from consumers.classifier.router import Reason
    from repair_worker.service import BREAKER_OPEN, OVER_SPLICE_LIMIT, SESSION_NOT_HELD

    page = (ROOT / "docs" / "protocol.md").read_text()
    library = re.findall(
        r'"([a-z_]+)"', "".join(re.findall(r"(?:Attempt\(None, |reason, spent = ).*", repair_sources()))
    )
    reasons = {*Reason, BREAKER_OPEN, OVER_SPLICE_LIMIT, SESSION_NOT_HELD, *library} - {"forced"}
    assert len(reasons) >= 16
    assert [reason for reason in reasons if f"`{reason}`" not in page] == []


def repair_sources() -> str:
    return "".join((ROOT / "toksplice" / name).read_text() for name in ("repair.py", "session.py"))
