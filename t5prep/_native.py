"""Say how to get what is in C (native/). Where it is built, Python takes that module of this name, and never this file."""

from t5prep.errors import NotBuiltError
from t5prep.io.installation import install_command

raise NotBuiltError(
    "What t5prep has in C is not built here. Install a wheel of t5prep, or a C compiler (`apt install gcc`; on macOS "
    f"`xcode-select --install`) and then: {install_command(options='--force-reinstall --no-deps')}"
)
