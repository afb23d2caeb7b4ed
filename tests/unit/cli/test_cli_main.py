"""The command line itself: parsing, exit codes, one line for every failure."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import Command

from cli.errors import CliError, ExitCode, explain
from cli.main import COMMANDS, build_parser
from pipeline.errors import BrokerUnavailableError, DeadlineError, SettingsError, TopologyError
from schemas.codes import Code
from schemas.errors import ProtocolError
from toksplice.errors import ReferenceFailedError, SourceError, TextError, UnknownTokenizerError
from toksplice.registry import Registry


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CliError(ExitCode.INPUT, "x"), ExitCode.INPUT),
        (UnknownTokenizerError("x"), ExitCode.TOKENIZER),
        (SourceError("x"), ExitCode.TOKENIZER),
        (TextError("x"), ExitCode.INPUT),
        (ReferenceFailedError("x"), ExitCode.SERVICE),
        (BrokerUnavailableError("x"), ExitCode.BROKER),
        (TopologyError("x"), ExitCode.BROKER),
        (DeadlineError("x"), ExitCode.SERVICE),
        (SettingsError("x"), ExitCode.USAGE),
        (ProtocolError(Code.MALFORMED, "x"), ExitCode.SERVICE),
        (FileNotFoundError(2, "No such file", "name"), ExitCode.INPUT),
        (OSError(28, "No space left on device"), ExitCode.STORAGE),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (ExceptionGroup("several", [BrokerUnavailableError("x")]), ExitCode.BROKER),
        (ZeroDivisionError("x"), ExitCode.INTERNAL),
    ],
)
def test_every_failure_has_its_exit_code(error: BaseException, code: ExitCode) -> None:
    found, message = explain(error)
    assert found is code
    assert message


def test_help_of_every_command_can_be_printed(command: Command) -> None:
    assert build_parser().format_help()
    for name in COMMANDS:
        done = command(name, "--help")
        assert done.code == 0, done.err
        assert "usage: toksplice" in done.out


def test_no_command_is_a_usage_error_with_help(command: Command) -> None:
    done = command()
    assert done.code == ExitCode.USAGE
    assert "replay" in done.out


def test_a_wrong_command_line_is_a_usage_error(command: Command) -> None:
    assert command("no-such-command").code == ExitCode.USAGE
    assert command("verify", "--cases", "0").code == ExitCode.USAGE


def test_the_version_names_the_reference_too(command: Command) -> None:
    assert "tokenizers 0." in command("--version").out


def test_a_failure_is_one_line_and_no_traceback(command: Command, registry: Registry) -> None:
    done = command("tokenize", "/nowhere/text.txt")
    assert done.code == ExitCode.INPUT
    assert done.err == "toksplice: /nowhere/text.txt: No such file or directory\n"
    assert done.out == ""


def test_an_internal_fault_is_one_line_too(
    command: Command, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = tmp_path / "t"
    text.write_text("x")
    monkeypatch.setattr("cli.tokenize_file.choose_tokenizer", lambda *_: 1 / 0)
    done = command("tokenize", text)
    assert done.code == ExitCode.INTERNAL
    assert done.err.count("\n") == 1
    assert "TOKSPLICE_DEBUG=1" in done.err
    monkeypatch.setenv("TOKSPLICE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        command("tokenize", text)


def test_help_loads_no_broker_and_no_sdk() -> None:
    script = (
        "import sys; from cli.main import main; main(['--help']);"
        "sys.exit(any(n in sys.modules for n in ('aiokafka', 'opentelemetry.sdk', 'cupy')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_file_is_tokenized(command: Command, registry: Registry, tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("Hello world" * 30)
    done = command("tokenize", text)
    assert done.code == 0
    assert done.out.startswith("15496 995")
    assert "60 tokens" not in done.out
    assert command("tokenize", text, "--json").json["ids"][:2] == [15496, 995]


def test_a_file_that_is_not_utf8_is_refused(command: Command, registry: Registry, tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_bytes(b"abc\xff")
    done = command("tokenize", text)
    assert done.code == ExitCode.INPUT
    assert "byte 3" in done.err


def test_an_unknown_tokenizer_says_how_to_get_it(command: Command, registry: Registry, tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("x")
    done = command("tokenize", text, "--tokenizer", "qwen3")
    assert done.code == ExitCode.TOKENIZER
    assert "toksplice tokenizers fetch qwen3" in done.err
    assert command("tokenizers", "show", "qwen3").err == done.err
    assert command("up", "--tokenizer", "qwen3").err == done.err
    unknown = command("tokenize", text, "--tokenizer", "nobody")
    assert unknown.code == ExitCode.TOKENIZER
    assert "toksplice tokenizers add NAME FILE" in unknown.err
    assert command("tokenizers", "show", "nobody").err == unknown.err


def test_shown_paths_are_whole_in_a_narrow_terminal(
    command: Command, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert f"{registry.path('gpt2')}\n" in command("tokenizers", "show", "gpt2").out


def test_tokenizers_are_listed_added_and_shown(command: Command, registry: Registry, gpt2_file: Path) -> None:
    listed = command("tokenizers", "list", "--json").json
    assert [entry["name"] for entry in listed["registered"]] == ["gpt2"]
    licences = {source["name"]: source["licence"] for source in listed["fetchable"]}
    assert licences["qwen3"] == "Apache-2.0"
    assert [entry["licence"] for entry in listed["registered"]] == ["MIT"]
    assert "qwen3" in command("tokenizers", "list").out
    assert command("tokenizers", "add", "mine", gpt2_file).code == 0
    shown = command("tokenizers", "show", "mine", "--json").json
    assert shown["fingerprint"] == registry.resolve("gpt2")
    assert (shown["routes"], shown["engine"], shown["licence"]) == (["A"], "native", "MIT")
    assert "fingerprint" in command("tokenizers", "show", "mine").out


def test_the_built_in_tokenizer_can_be_fetched(command: Command, home: Path) -> None:
    fetched = command("tokenizers", "fetch", "gpt2", "--json").json
    assert [entry["name"] for entry in fetched] == ["gpt2"]
    assert command("tokenizers", "fetch").code == ExitCode.USAGE
    assert command("tokenizers", "fetch", "nobody").code == ExitCode.TOKENIZER


@pytest.mark.parametrize(
    "words",
    [
        ("worker", "classifier", "--broker", "memory://"),
        ("top", "--broker", "memory://"),
        ("dlq", "list", "--broker", "memory://"),
        ("dlq", "replay", "--broker", "kafka://localhost:1"),
        ("top", "--broker", "amqp://localhost"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(command: Command, words: tuple[str, ...]) -> None:
    done = command(*words)
    assert done.code == ExitCode.USAGE
    assert done.err.startswith("toksplice: ")


def test_a_gpu_worker_without_a_gpu_says_so_and_ends(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.worker.why_no_gpu", lambda: "no GPU is used: made by a test")
    done = command("worker", "gpu-worker", "--broker", "kafka://localhost:1")
    assert (done.code, done.err) == (ExitCode.DEVICE, "toksplice: no GPU is used: made by a test\n")


def test_json_goes_to_stdout_alone(command: Command, registry: Registry) -> None:
    done = command("tokenizers", "list", "--json")
    json.loads(done.out)
    assert done.err == ""
