import hashlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from jetway.runtime import cli
from jetway.runtime.layers import resolve
from jetway.runtime.named_config import KeyConfig
from jetway.runtime.settings import Given


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"jetway {version('jetway-llm')}\n"


def test_print_config_names_the_spelling_of_a_flag(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("log_level: debug\n")
    argv = ["serve", "engine", "--max-batch-size", "4", "--port=0", "--config", str(file), "--print-config"]
    assert cli.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "engine: engine  # argument"
    assert "log_level: debug  # mine.yaml line 1" in lines
    assert "  max_num_seqs: 4  # flag --max-batch-size" in lines
    assert "  port: 0  # flag --port" in lines
    assert "  grpc_port: 8001  # default" in lines


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("--write-through", "  write_through: true  # flag --write-through"),
        ("--no-write-through", "  write_through: false  # flag --no-write-through"),
        ("--no-mix-prefill", "  mix_prefill: false  # flag --no-mix-prefill"),
        ("--enforce-eager", "  mix_prefill: false  # flag --enforce-eager"),
        ("--no-enforce-eager", "  mix_prefill: true  # flag --no-enforce-eager"),
    ],
)
def test_a_switch_has_no_value_and_an_opposite(capsys: pytest.CaptureFixture[str], flag: str, line: str) -> None:
    assert cli.main(["serve", "engine", flag, "--print-config"]) == 0
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no command given; try `jetway serve ENGINE` or `jetway --help`"),
        (["serve"], "engine is missing: it is the first argument, or a key of the configuration file"),
        (["serve", "engine", "--prot", "80"], "unknown argument --prot; did you mean --port?"),
        (["serve", "engine", "--max-num-seq=3"], "unknown argument --max-num-seq=3; did you mean --max-num-seqs?"),
        (["serve", "engine", "other"], "unknown argument other"),
        (
            ["serve", "engine", "--swap-space", "4"],
            "unknown argument --swap-space: vLLM's was in GiB; use host_cache_memory, for example 4GiB",
        ),
        (
            ["serve", "engine", "--no-write-trough"],
            "unknown argument --no-write-trough; did you mean --no-write-through?",
        ),
        (
            ["serve", "engine", "--write-through=true"],
            "argument --write-through/--no-write-through: ignored explicit argument 'true' (see jetway serve --help)",
        ),
        (["status", "--adress", "x"], "unknown argument --adress; did you mean --address?"),
        (
            ["status", "--watch", "0"],
            "argument --watch: must be a number from 0.1 to 86400, not '0' (see jetway status --help)",
        ),
        (["serve", "engine", "--port"], "argument --port: expected one argument (see jetway serve --help)"),
        (["serve", "engine", "--port", "x"], "port must be a whole number, not 'x' (flag --port)"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert cli.main(argv) == 2
    assert capsys.readouterr().err == f"jetway: {message}\n"


def test_a_key_is_shown_once_with_the_entry_that_lets_it_in(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shown = []
    for _ in range(2):
        assert cli.main(["key", "acme: corp"]) == 0
        key, _, entry = capsys.readouterr().out.partition("\n")
        file = tmp_path / "serve.yaml"
        file.write_text(entry)
        keys = resolve({"engine": Given("e", "argument")}, {}, file).config.keys
        assert keys == {"acme: corp": KeyConfig(sha256=hashlib.sha256(key.encode()).hexdigest())}
        shown.append(key)
    assert len(set(shown)) == 2
    assert all(len(key) == len("jw-") + 43 for key in shown)  # 256 bits in base64


def test_an_interrupt_while_importing_is_quiet() -> None:
    program = """if True:
        import sys
        from jetway.runtime.cli import main

        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == "yaml":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupt())
        sys.exit(main(["serve", "engine"]))
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_help_imports_nothing_heavy() -> None:
    program = """if True:
        import sys
        from jetway.runtime.cli import main
        try:
            main(["serve", "--help"])
        except SystemExit:
            print([name for name in ("grpc", "numpy", "fastapi", "openvino", "torch") if name in sys.modules])
    """
    out = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert "--max-num-seqs" in out
    assert "strict|weighted|fcfs" in out
    assert out.endswith("\n[]\n")
