"""The Makefile explains its targets, and finds or brings a Python that fits, whatever the machine has."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()

# A Python that knows its version, whether it can make environments, and how to install a uv.
FAKE_PYTHON = """#!/bin/sh
case "$1 $2" in
  "-c import sys"*) echo {minor} ;;
  "-c import ensurepip"*) exit {without_venv} ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip") cp {uv} "${{0%/*}}/uv" ;;
esac
"""
FAKE_UV = """#!/bin/sh
for folder; do :; done
mkdir -p "$folder/bin"
printf '#!/bin/sh\\necho 13\\n' >"$folder/bin/python" && chmod +x "$folder/bin/python"
"""


class Machine:
    """A folder of programs that is the whole PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "path"
        self.path.mkdir()
        for tool in ("sh", "sed", "mktemp", "rm", "mkdir", "cp", "mv", "chmod"):
            (self.path / tool).symlink_to(shutil.which(tool) or "")
        self.uv = folder / "uv-of-the-index"
        self._write(self.uv, FAKE_UV)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def has_python(self, name: str, minor: int, *, venv: bool = True) -> None:
        """Put a Python of a version under a name on the PATH."""
        self._write(self.path / name, FAKE_PYTHON.format(minor=minor, without_venv=int(not venv), uv=self.uv))

    def has_uv(self) -> None:
        self._write(self.path / "uv", FAKE_UV)

    def make(self, purpose: str, requested_python: str = "") -> subprocess.CompletedProcess[str]:
        """Run .ci/python as the Makefile does."""
        environment = {"PATH": str(self.path), "TMPDIR": str(self.folder)}
        command = [str(ROOT / ".ci" / "python"), str(self.folder / "made"), purpose, requested_python]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def version(self) -> str:
        """Return the version of the environment that was made."""
        python = self.folder / "made" / "bin" / "python"
        return subprocess.run(
            [python, "-c", "import sys"], env={"PATH": str(self.path)}, capture_output=True, text=True, check=True
        ).stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_phony_names_are_the_targets() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert sorted(phony.split()) == sorted(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("purpose", ["prepare", "train"])
@pytest.mark.parametrize(
    ("pythons", "expected_minor"),
    [
        ({"python3": 11}, "11"),
        ({"python3": 11, "python3.12": 12}, "12"),
        ({"python3": 14, "python3.11": 11}, "11"),
        ({"python3": 13, "python3.13": 13, "python3.12": 12, "python3.14": 14}, "13"),
        ({"python3": 10, "python": 12}, "12"),
    ],
)
def test_the_newest_python_that_tensorflow_has_wheels_for(
    machine: Machine, purpose: str, pythons: dict[str, int], expected_minor: str
) -> None:
    for name, minor in pythons.items():
        machine.has_python(name, minor)
    result = machine.make(purpose)
    assert result.returncode == 0, result.stderr
    assert machine.version() == expected_minor
    assert len(result.stderr.splitlines()) == 1
    assert f"with Python 3.{expected_minor} (" in result.stderr
    second_result = machine.make(purpose)
    assert (second_result.returncode, second_result.stderr) == (0, "")


def test_a_machine_with_3_14_alone_prepares_with_it_and_trains_with_what_uv_brings(machine: Machine) -> None:
    machine.has_python("python3", 14)
    machine.has_uv()
    assert machine.make("prepare").returncode == 0
    assert machine.version() == "14"
    result = machine.make("train")
    assert result.returncode == 0
    assert machine.version() == "13"
    rebuild_message, uv_message = result.stderr.splitlines()
    assert rebuild_message.endswith("made has Python 3.14, and TensorFlow needs 3.11 to 3.13: making it anew.")
    assert uv_message.startswith(
        "This machine has only Python 3.14, and TensorFlow needs 3.11 to 3.13: uv brings Python 3.13"
    )
    assert machine.make("prepare").stderr == ""


@pytest.mark.parametrize("purpose", ["prepare", "train"])
def test_a_machine_with_3_10_alone_installs_uv_for_the_moment(machine: Machine, purpose: str) -> None:
    machine.has_python("python3", 10)
    result = machine.make(purpose)
    assert result.returncode == 0, result.stderr
    assert machine.version() == "13"
    assert "only Python 3.10" in result.stderr
    assert sorted(path.name for path in machine.folder.iterdir()) == ["made", "path", "uv-of-the-index"]


def test_a_missing_venv_is_a_sentence_with_the_command_that_mends_it(machine: Machine) -> None:
    machine.has_python("python3", 12, venv=False)
    result = machine.make("train")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "sudo apt-get install python3.12-venv" in result.stderr
    machine.has_python("python3.11", 11)
    assert machine.make("train").returncode == 0
    assert machine.version() == "11"


def test_a_machine_without_any_python_is_told_what_to_do(machine: Machine) -> None:
    result = machine.make("prepare")
    assert result.returncode == 1
    assert result.stderr.startswith("This machine has no Python, preparing needs 3.11 to 3.14, and there is no uv")
    assert "make PYTHON=" in result.stderr


def test_uv_that_brings_nothing_is_a_sentence(machine: Machine) -> None:
    machine.has_python("python3", 10)
    machine._write(machine.path / "uv", "#!/bin/sh\nexit 1\n")
    result = machine.make("train")
    assert result.returncode == 1
    assert "uv cannot bring one" in result.stderr.splitlines()[-1]
    assert not (machine.folder / "made").exists()


def test_an_environment_is_kept_where_no_better_one_can_be_made(machine: Machine) -> None:
    machine.has_python("python3", 14)
    machine._write(machine.path / "uv", "#!/bin/sh\nexit 1\n")
    assert machine.make("prepare").returncode == 0
    assert machine.make("train").returncode == 1
    assert machine.version() == "14"
    assert not (machine.folder / "made.old").exists()


def test_the_python_that_is_asked_for_is_the_only_one(machine: Machine) -> None:
    machine.has_python("python3", 12)
    machine.has_python("mine", 11)
    machine.has_python("new", 14)
    assert machine.make("train", "nothing").stderr.startswith("PYTHON=nothing is not a Python 3 that starts.")
    refused = machine.make("train", "new")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    assert "PYTHON=new is Python 3.14, and TensorFlow needs 3.11 to 3.13" in refused.stderr
    assert machine.make("train", "mine").returncode == 0
    assert machine.version() == "11"


def test_an_environment_whose_python_is_gone_is_made_anew(machine: Machine) -> None:
    machine.has_python("python3", 12)
    (machine.folder / "made" / "bin").mkdir(parents=True)
    machine._write(machine.folder / "made" / "bin" / "python", "#!/nowhere/python\n")
    result = machine.make("prepare")
    assert result.returncode == 0
    assert "does not start any more" in result.stderr
    assert machine.version() == "12"


def test_make_looks_for_a_python_before_it_installs(tmp_path: Path) -> None:
    """The recipe of each set of packages asks .ci/python for what that set needs."""
    rules = dict(re.findall(r"^\$\(VENV\)/(\w+): .*\n\t@(.*)$", MAKEFILE, re.MULTILINE))
    purposes = {name: re.findall(r"\.ci/python \$\(VENV\) (\w+) '\$\(PYTHON\)'", line) for name, line in rules.items()}
    assert purposes == {"base": ["prepare"], "train": ["train"], "dev": ["train"]}
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / "setup.py").touch()
    environment = {**os.environ, "MAKEFLAGS": ""}
    ran = subprocess.run(
        ["make", "prep", "PYTHON=nothing"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert "PYTHON=nothing is not a Python 3 that starts." in ran.stderr


def test_the_size_of_an_installation_is_printed_before_it() -> None:
    """Two gigabytes take minutes: a silent make looks as if it hung."""
    assert MAKEFILE.count("(once: 2 GB, some minutes) ...") == 2
