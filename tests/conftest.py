"""What every test may ask for: the real data of the seeds where it is, and the hosts that text comes from."""

from pathlib import Path

import pytest
from servers.internet import _authority, internet  # noqa: F401 - fixtures

DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    """Real files of the seeds' corpora; tests that want them skip where they are missing."""
    if not DATA.is_dir():
        pytest.skip("the seeds' data is not on this machine")
    return DATA
