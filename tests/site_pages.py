"""Write the Markdown that the site is built of (`make docs`): docs/, with README.md as its first page.

python tests/site_pages.py build/docs
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BESIDE_DOCS = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
# The site has no source files: a link to one becomes its text.
SOURCE_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:t5prep|pipelines|tests|\.ci|\.github)/[^)]*\)")


def write_pages(folder: Path) -> None:
    """Write all pages, with links that are right in the site, and the files that they link to."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    shutil.copy(ROOT / "CITATION.cff", folder)
    for source, page in BESIDE_DOCS.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = text.replace("](docs/", "](").replace("](README.md", "](index.md")
        (folder / page).write_text(text, encoding="utf-8")
    for path in folder.rglob("*.md"):
        text = SOURCE_LINK.sub(r"\1", path.read_text(encoding="utf-8"))
        for source, page in BESIDE_DOCS.items():
            text = text.replace(f"](../{source}", f"]({page}")
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
