"""Raise NotBuiltError with the command that builds the C extension of this name (sources: `t5prep/native/`).

Python imports this file only where the extension is missing: beside a built `_native.*.so`, it prefers the extension.
"""

from t5prep.errors import NotBuiltError
from t5prep.io.installation import install_command

raise NotBuiltError(
    "The C extension of t5prep is not built here. Install a wheel of t5prep. Or install a C "
    "compiler (`apt install gcc`; on macOS `xcode-select --install`), and then run: "
    f"{install_command(options='--force-reinstall --no-deps')}",
    code="install.missing-extension",
)
