"""Every extra resolves with the pinned versions on every Python that the package is for."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).parents[1]
PINS = ROOT / ".ci" / "pins.txt"
NEWEST = ROOT / ".ci" / "pins-newest.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The oldest Linux for which libtpu and TensorFlow have wheels.
PLATFORM = "x86_64-manylinux_2_31"


def _setup() -> dict:
    """Return what setup.py hands to setuptools."""
    setup_options: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **arguments: setup_options.update(arguments))
        runpy.run_path(str(ROOT / "setup.py"))
    return setup_options


SETUP = _setup()


def _resolve(folder: Path, extras: Iterable[str], python: str, *options: str, pins: Path = PINS) -> set[str]:
    """Return the packages that the base with some extras resolves to for a version of Python.

    uv does it, because it reads a requirement's markers for that version; pip reads them for the one that runs.
    """
    local_uv = Path(sys.executable).parent / "uv"
    uv = str(local_uv) if local_uv.exists() else shutil.which("uv")
    assert uv
    requirements_path = folder / "wanted.txt"
    extra_requirements = [requirement for extra in extras for requirement in SETUP["extras_require"][extra]]
    requirements_path.write_text("\n".join([*SETUP["install_requires"], *extra_requirements]) + "\n")
    command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-platform", PLATFORM]
    command += ["--python-version", python, "-c", str(pins), *options, str(requirements_path)]
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    environment.pop("PIP_FIND_LINKS", None)
    resolved = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert resolved.returncode == 0, resolved.stderr
    return set(re.findall(r"^([a-z0-9-]+)==", resolved.stdout, re.MULTILINE))


@pytest.mark.extra("uv")
@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_every_extra_resolves_with_the_pins(tmp_path: Path, python: str) -> None:
    """All extras together do, so each of them does."""
    packages = _resolve(tmp_path, SETUP["extras_require"], python)
    pinned = set(re.findall(r"^([a-z0-9-]+)==", PINS.read_text(), re.MULTILINE))
    assert packages <= pinned, "these would be another version tomorrow"
    assert ("tensorflow-cpu" in packages) == (python != "3.14")
    assert not {"tensorflow", "tensorflow-text"} & packages  # whose files are those of tensorflow-cpu


@pytest.mark.extra("uv")
@pytest.mark.slow
def test_every_extra_resolves_with_the_newest_of_each_range(tmp_path: Path) -> None:
    extras = SETUP["extras_require"].keys() - {"gpu"}  # of which CI runs nothing
    packages = _resolve(tmp_path, extras, "3.13", pins=NEWEST)
    versions = dict(re.findall(r"^([a-z0-9-]+)==([0-9]+\.[0-9]+)", NEWEST.read_text(), re.MULTILINE))
    assert packages <= versions.keys(), "these would be another version tomorrow"
    assert (versions["jax"], versions["tensorflow-cpu"]) == ("0.12", "2.21")


@pytest.mark.extra("uv")
@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_what_preparing_needs_has_a_wheel(tmp_path: Path, python: str) -> None:
    """A user's machine has no compiler."""
    assert "apache-beam" in _resolve(tmp_path, ["report"], python, "--only-binary", ":all:")


def test_setup_names_the_pythons_that_are_held_here() -> None:
    versions = {name.rpartition(" ")[2] for name in SETUP["classifiers"] if re.search(r":: 3\.\d+$", name)}
    assert versions == set(PYTHONS)
    assert SETUP["python_requires"] == f">={PYTHONS[0]}"
