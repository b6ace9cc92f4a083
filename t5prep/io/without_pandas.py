"""Start pyarrow without pandas: it looks for it at its first list, and the import takes as long as all others of `prepare`."""

import importlib.abc
import sys
from collections.abc import Sequence
from typing import Any


class _NoPandas(importlib.abc.MetaPathFinder):
    """Say that there is no pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        """Raise ModuleNotFoundError for pandas, and leave all other modules to other finders."""
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def start() -> None:
    """Import pyarrow and let it not find pandas, unless this process has it already.

    pyarrow looks once in a process. After this `import pandas` works as ever, and so do tables to and from its frames;
    a Series is taken for a list of values.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(finder)
