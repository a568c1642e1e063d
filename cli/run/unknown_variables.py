"""Environment variables that look like options and are none."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from difflib import get_close_matches

from ..common.configured_command import ConfiguredCommand
from ..common.described_options import PREFIX

_OTHERS = ("COLOR", "CONFIG", "PASSWORD", "PASSWORD_FILE", "REDACT_KEY", "URL", "USER")
"""The variables of other commands, and of the configuration file itself, without the prefix."""
_PASSWORD_ENV = re.compile(rf"[?&]password-env={PREFIX}([^&]+)")


def unknown_variables(command: ConfiguredCommand, connect_to: Collection[str]) -> list[str]:
    """Return a warning for each variable CAIRNMQ_* that is neither an option of *command* nor read by another one.

    Variables that the URLs of *connect_to* name as `password-env` are known. Values are never part of a warning.
    """
    known = {*_OTHERS, *(str(option.envvar).removeprefix(PREFIX) for option in command.described().values())}
    known.update(name for url in connect_to for name in _PASSWORD_ENV.findall(url))
    given = (name.removeprefix(PREFIX) for name in sorted(os.environ) if name.startswith(PREFIX))
    text = f"{PREFIX}%s in the environment: unknown variable, ignored; %s"
    return [text % (name, _remedy(name, known)) for name in given if name not in known]


def _remedy(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"did you mean {PREFIX}{near[0]}?" if near else "unset it; `cairnmq config show` lists all options"
