"""The modes and owners of files that decide about access: one rule for broker, console, connectors and tools.

| file | refused |
|---|---|
| any | others may write it, or a group that the process is not in |
| with secrets | others may read it, its group may write it, or a group that the process is not in may read it |
| with secrets | another user than the process's and root owns it, unless root runs the process |

A volume of Kubernetes with `fsGroup` has files of root with mode 0440 or 0640 and the group of the process.
"""

from __future__ import annotations

import os
import stat

from .errors import CairnError


def exposure(path: str, *, is_secret: bool = True) -> tuple[str, str]:
    """Return why *path* is not protected, and the remedy; empty texts if it is. A missing file has none."""
    try:
        found = os.stat(path)
    except OSError:
        return "", ""  # whoever reads it reports that
    user, mode = os.geteuid(), stat.S_IMODE(found.st_mode)
    if is_secret and user and found.st_uid not in (0, user):
        return f"user {found.st_uid} owns it, and may change it", f"chown {user} {path}"
    is_of_group = not user or found.st_gid in (os.getegid(), *os.getgroups())
    refused = 0o027 if is_secret else 0o002
    if not is_of_group:
        refused |= 0o070 if is_secret else 0o020
    if not mode & refused:
        return "", ""
    verb = "read or change" if is_secret else "change"
    return f"others may {verb} it (mode {mode:04o})", f"chmod {'600' if is_secret else 'go-w'} {path}"


def refuse_exposed(place: str, path: str, *, is_secret: bool = True, kind: type[CairnError] = CairnError) -> None:
    """Raise an error of *kind*, which names *place*, if *path* is not protected."""
    reason, remedy = exposure(path, is_secret=is_secret)
    if reason:
        raise kind(place, reason, remedy)
