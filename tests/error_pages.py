"""Write docs/errors.md from the codes of errors (`make reference`), and list the codes that the sources use."""

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

from t5prep.error_codes import CODES

ROOT = Path(__file__).parents[1]
HEAD = """# Errors and their codes

    $ t5prep verify data/absent
    Error: data/absent does not exist. Prepare it (again): t5prep prepare TASK --out data/absent ... [dataset.not-found]

Every error ends with a code in brackets. Sentences may be reworded in a later version; codes stay. A command with `--json` also
prints `{"error": {"code": "dataset.not-found", "message": "..."}}` as the last line of stdout. In Python, `T5prepError.code`
holds the code.

`make reference` writes this page from [`t5prep/error_codes.py`](../t5prep/error_codes.py).
"""


def markdown() -> str:
    """Return the page: a table of codes, meanings and fixes for each area."""
    parts = [HEAD]
    for area, codes in itertools.groupby(sorted(CODES), key=lambda code: code.partition(".")[0]):
        rows = "\n".join(f"| `{code}` | {CODES[code][0]} | {CODES[code][1]} |" for code in codes)
        parts.append(f"## {area}\n\n| code | meaning | fix |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def used_codes() -> Iterator[tuple[str, str]]:
    """Yield each code that the sources use, with the file: any argument `code` with a dot, and any string that is a code."""
    for root in ("t5prep", "pipelines"):
        for path in sorted((ROOT / root).rglob("*.py")):
            if path.name == "error_codes.py":
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                strings = [node] if isinstance(node, ast.Constant) and node.value in CODES else []
                if isinstance(node, ast.keyword) and node.arg == "code":
                    strings = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
                for string in strings:
                    if isinstance(string.value, str) and "." in string.value:
                        yield string.value, str(path.relative_to(ROOT))


if __name__ == "__main__":
    print(markdown(), end="")
