"""Who uses a vault: on one machine, the user of the operating system."""

from __future__ import annotations

import os
import pwd


def current_principal() -> str:
    """Returns `user:<name>` of this process's user, or `uid:<number>` for one without a name."""
    uid = os.getuid()
    try:
        return f"user:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid:{uid}"
