"""Every name that the Makefile calls phony is a target that `make` explains."""

import re
from pathlib import Path

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text()


def test_phony_names_are_the_targets() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert sorted(phony.split()) == sorted(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
