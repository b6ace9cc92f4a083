"""A real browser, which looks at a page as a person would: at two widths, without a window."""

import shutil
import subprocess
import tempfile
from pathlib import Path


def look(page: Path) -> None:
    """Draws a page on a telephone and on a desk; its console must stay silent."""
    folder = page.parent
    for width in (390, 1280):
        (folder / "frame.html").write_text(
            f'<body style="margin:0"><iframe src="{page.name}" style="border:0;width:{width}px;height:1500px"></iframe>'
        )
        shot = folder / f"{width}.png"
        _browsed(f"--window-size={max(width, 500)},1500", f"--screenshot={shot}", f"file://{folder}/frame.html")
        assert shot.stat().st_size > 20_000  # an empty page is a few kB


def draw(address: str, picture: Path, *, height: int = 900) -> None:
    """Write a picture of the top of a page, 1280 pixels wide."""
    _browsed(f"--window-size=1280,{height}", f"--screenshot={picture}", address)


def read(*addresses: str) -> list[str]:
    """Opens pages of a server; returns what they are to the browser, whose console must stay silent."""
    return [_browsed("--dump-dom", address).stdout for address in addresses]


def program() -> str | None:
    """Return the path of a chromium, None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def _browsed(*arguments: str) -> "subprocess.CompletedProcess[str]":
    with tempfile.TemporaryDirectory() as profile:
        ran = subprocess.run(
            [
                *(str(program()), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
                *(f"--user-data-dir={profile}", *arguments),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert "CONSOLE" not in ran.stderr
    return ran
