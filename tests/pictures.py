"""Write docs/pictures: what report, explore and plan show of the built-in sample, drawn by Chromium (`make pictures`).

python tests/pictures.py docs/pictures
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import browser

T5PREP = [sys.executable, "-m", "t5prep.cli"]
SAMPLE = ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", "data/sample"]
PLAN = ["plan", "--recipe", "tiny", "--data", "data/sample", "--tpu", "v5e-1", "--html", "plan.html"]


EXPLORE = ["explore", "data/sample", "--port", "0"]


def draw(folder: Path) -> None:
    """Write a picture of each page, 1280 pixels wide."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work_folder:
        os.chdir(work_folder)
        for arguments in (SAMPLE, ["report", "data/sample"], PLAN):
            subprocess.run([*T5PREP, *arguments], check=True)
        browser.draw(f"file://{work_folder}/data/sample/report.html", folder / "report.png")
        browser.draw(f"file://{work_folder}/plan.html", folder / "plan.png")
        with subprocess.Popen(
            [*T5PREP, *EXPLORE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as server:
            address = next(match[0] for line in server.stdout or () if (match := re.search(r"http://\S+/", line)))
            browser.draw(address, folder / "explore.png")
            server.send_signal(signal.SIGINT)


if __name__ == "__main__":
    draw(Path(sys.argv[1]).resolve())
