"""Check Python, the installed packages, the encoder in C and what the runners need."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pipelines import engines
from t5prep.cli._doctor.finding import Finding
from t5prep.errors import NotBuiltError
from t5prep.io.installation import install_command

EXTRAS = {
    "train": "training, evaluating and predicting",
    "tpu": "training on a TPU VM",
    "plan": "planning with the TPU compiler",
    "report": "pages with charts",
    "dataflow": "preparing on Dataflow",
}


def packages() -> Iterator[Finding]:
    """Check Python and the required packages against the version bounds in the installed package's metadata."""
    here = platform.python_version()
    try:
        about = importlib.metadata.metadata("t5prep")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("Python", "ok", here)
        seen = "runs from its folder, so which packages it wants is not known"
        yield Finding("t5prep", "absent", seen, install_command())
        return
    wanted = str(about.json.get("requires_python", ">=3.11"))
    fits = SpecifierSet(wanted).contains(here, prereleases=True)
    yield Finding(
        "Python", "ok" if fits else "wrong", f"{here} (wanted: {wanted})", "" if fits else "uv python install 3.11"
    )
    needs = [Requirement(text) for text in about.get_all("Requires-Dist") or []]
    for extra in ("", *EXTRAS):
        own = [need for need in needs if _of(need, extra)]
        if own:
            yield _fitting(extra, own)


def encoder() -> Finding:
    """Check whether what is in C is installed, and its encoder gives SentencePiece's ids with the sample's tokenizer."""
    try:
        from t5prep.tokens import loading

        slow = loading.load("sample:").slow
    except NotBuiltError:
        again = install_command(options="--force-reinstall --no-deps")
        return Finding("encoder in C", "wrong", "it is not built", f"install a C compiler, then: {again}")
    if not slow:
        return Finding("encoder in C", "ok", "gives SentencePiece's ids")
    return Finding(
        "encoder in C",
        "absent",
        f"SentencePiece does its work, to the same bytes, more slowly: {slow}",
        install_command(options="--force-reinstall"),
    )


def _of(need: Requirement, extra: str) -> bool:
    """Check whether a requirement belongs to an extra ("": to the base install)."""
    always = need.marker is None or need.marker.evaluate({"extra": ""})
    return always if not extra else not always and need.marker is not None and need.marker.evaluate({"extra": extra})


def _fitting(extra: str, needs: list[Requirement]) -> Finding:
    bad = []
    for need in needs:
        have = version(need.name)
        if have is None:
            bad.append(f"{need.name} is missing")
        elif not need.specifier.contains(have, prereleases=True):
            bad.append(f"{need.name} {have} is not {need.specifier}")
        elif "gcp" in need.extras and version("google-apitools") is None:
            bad.append("apache-beam has no Google Cloud in it")
    name = f"extra {extra}" if extra else "packages"
    if not bad:
        purpose = f", for {EXTRAS[extra]}" if extra else ""
        return Finding(name, "ok", f"{len(needs)} packages, all as tested{purpose}")
    mend = install_command(*filter(None, [extra]))
    some = ", ".join(bad[:4]) + (f" and {len(bad) - 4} more" if len(bad) > 4 else "")
    purpose = f" (for {EXTRAS[extra]})" if extra else ""
    return Finding(name, "absent" if extra else "wrong", some + purpose, mend)


def version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def runners() -> Iterator[Finding]:
    """Check for what each runner needs besides its packages."""
    yield Finding("runner local", "ok", f"{os.cpu_count()} cores")
    lacks = engines.missing()
    for engine in ("prism", "flink"):
        missing = [lack for lack in lacks if lack.engine == engine]
        name = f"runner {engine}"
        if missing:
            what = " and ".join(lack.what for lack in missing)
            yield Finding(name, "absent", f"{what} not found", missing[0].command)
        else:
            yield Finding(name, "ok", "all it needs is here")
