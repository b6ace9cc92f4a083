"""Raise NotBuiltError with the command that builds the C extension of this name (sources: `t5prep/native/`).

Python imports this file only where the extension is missing: beside a built `_native.*.so`, it prefers the extension.
"""

from t5prep.errors import NotBuiltError
from t5prep.io.installation import install_command

raise NotBuiltError(
    "What t5prep has in C is not built here. Install a wheel of t5prep, or a C compiler (`apt install gcc`; on macOS "
    f"`xcode-select --install`) and then: {install_command(options='--force-reinstall --no-deps')}",
    code="install.missing-extension",
)
