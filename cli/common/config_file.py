"""The configuration file of a command: TOML whose keys are the names of its options."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click
import msgspec

from ...base.errors import InvalidOption
from ...base.secret_files import refuse_exposed
from .described_options import ConfigFile, DescribedOption
from .units import Size, SizeRange

MAX_FILE_BYTES = 1 << 20
_REASON = re.compile(r" - at `\$.*`$")


def read_config(path: str, options: Mapping[str, DescribedOption], option: str = "") -> ConfigFile:
    """Read a configuration file whose keys are those of *options*. Raises `InvalidOption`.

    *option* is the option that names the file, if it is not an argument.
    """
    place = f"{option} {path}".lstrip()
    try:
        text = _read(path, place).decode("utf-8-sig")  # editors on Windows write a byte order mark
        values = tomllib.loads(text)
    except OSError as error:
        raise InvalidOption(place, f"can't be read: {error.strerror}", "name a readable file") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(path, f"not UTF-8: {error}", "save the file as UTF-8") from error
    except RecursionError:
        raise InvalidOption(path, "invalid TOML: arrays or tables are nested too deep", "no option needs it") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(path, f"invalid TOML: {error}", "correct the line; see https://toml.io") from error
    file = ConfigFile(path, values, _lines(text, values))
    for key, value in values.items():
        if key not in options:
            raise InvalidOption(file.place(key), "unknown key", _nearest(key, options))
        shown = "" if options[key].is_secret else f" = {value!r}"
        try:
            msgspec.convert(value, _toml_type(options[key]))
        except msgspec.ValidationError as error:
            reason = _REASON.sub("", str(error))
            reason = reason[:1].lower() + reason[1:]
            raise InvalidOption(f"{file.place(key)}{shown}", reason, "change the type of the value") from None
    return file


def _read(path: str, place: str) -> bytes:
    """Return the content of a regular file; a pipe could block forever."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise InvalidOption(place, "a directory" if stat.S_ISDIR(mode) else "not a regular file", "name a TOML file")
    refuse_exposed(place, path, is_secret=False, kind=InvalidOption)
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidOption(place, f"longer than {MAX_FILE_BYTES >> 20} MiB", "name a TOML file with options")
    return content


def _lines(text: str, keys: Mapping[str, Any]) -> dict[str, int]:
    """Return the line of each key; keys in other spellings than the plain one are missing."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name = re.match(r"\s*\[*\s*[\"']?([\w-]+)[\"']?\s*[]=.]", line)
        if name is not None and name[1] in keys:
            found.setdefault(name[1], number)
    return found


def _nearest(key: str, options: Mapping[str, DescribedOption]) -> str:
    near = get_close_matches(key.replace("_", "-"), options, 1)
    return f"did you mean {near[0]!r}?" if near else "`cairnmq config show` lists all keys"


def _toml_type(option: DescribedOption) -> Any:
    if option.is_flag:
        return bool
    if option.multiple:
        return list[str]
    if isinstance(option.type, Size | SizeRange):
        return int | str
    if isinstance(option.type, click.IntRange):
        return int
    return float | str if isinstance(option.type, click.FloatRange) else str
