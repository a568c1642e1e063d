"""Generator of the reference of broker options from their definitions.

`python -m tests.cli.option_page` writes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from cairnmq.cli.common.configured_command import DEFAULT_FILE
from cairnmq.cli.common.described_options import DescribedOption
from cairnmq.cli.common.units import Duration, Size, SizeRange
from cairnmq.cli.run.broker import broker

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
BEGIN = f"""\
# Configuration

Each option of `cairnmq broker` has a name on the command line (`--store-dir`), in the environment
(`CAIRNMQ_STORE_DIR`), and in the configuration file (`store-dir`). A value comes from the first of
these sources that has it:

1. the command line
2. the environment
3. the configuration file: `--config FILE`, or `CAIRNMQ_CONFIG`, or `{DEFAULT_FILE}` in the working
   directory
4. the default

```toml
# {DEFAULT_FILE}
store-dir = "/var/lib/cairnmq"
listen = "::"
users-file = "/etc/cairnmq/users"
idle-timeout = "30s"
memory-limit = "1GiB"
auto-create = ["orders.*", "events.*"]
```

The values of options that can be repeated are arrays in the file, and are separated by spaces in
the environment. Flags are `true` or `false`.

* **Sizes** are numbers with a unit: `512K`, `64MiB`, `1GB`. K and KiB are 1024 bytes, KB is 1000
  bytes. A number without a unit is bytes.
* **Durations** are numbers with a unit: `500ms`, `30s`, `10m`, `2h`, `7d`, `1w`. A number without a
  unit is seconds.

`cairnmq config check FILE` checks a file, and the files of users, access rules, certificates, keys
and tokens that it names. `cairnmq config show` prints all values and where they come from, without
passwords, and accepts the options of `cairnmq broker`. Unknown keys and invalid values are errors,
with exit status 2. Unknown variables `CAIRNMQ_*` cause warnings, also in the log of the broker
(`broker.unknown-variable`).

!!! note "Kubernetes"
    For a service with the name `cairnmq`, Kubernetes sets variables like
    `CAIRNMQ_PORT=tcp://10.0.0.1:5672` in all containers. Set `enableServiceLinks: false` in the
    specification of the pod.

## Reload

SIGHUP and `cairnmq ctl reload` read these files again: users, access rules, certificates,
revocation lists, and the configuration file. If any of the files is invalid, nothing changes. Only
the options in this list change at run time. A warning names other changed options, which take
effect at the next start:

"""


OTHERS = """\
## Variables of other commands

These variables are read by commands other than `cairnmq broker`, or by several commands. An empty
variable counts as not set. The first source that has a value applies:

| Variable | Value | Commands | Precedence |
|---|---|---|---|
"""
VARIABLES = (
    ("CAIRNMQ_URL", "the broker", "`ctl`, `console`, `perftest`", "`--url`, the variable, `amqp://127.0.0.1:5672`"),
    ("CAIRNMQ_USER", "the user at that broker", "`ctl`, `perftest`, `replay`, `as-of --resend`",
     "`--user`, the user in the URL, the variable, no user"),
    ("CAIRNMQ_PASSWORD", "the password of that user", "the same",
     "`--password-file`, the variable, `CAIRNMQ_PASSWORD_FILE`, a prompt on the terminal"),
    ("CAIRNMQ_PASSWORD_FILE", "a file with that password, with mode 0600", "the same",
     "`--password-file`, `CAIRNMQ_PASSWORD`, the variable, a prompt on the terminal"),
    ("CAIRNMQ_CONNECT", "the PostgreSQL server of the wiring", "`broker`, and all commands with `--connect`",
     "`--connect`, the variable, for `broker` the configuration file, no server"),
    ("CAIRNMQ_CONFIG", "the configuration file", "`broker`, `config show`, `doctor`, `support-bundle`",
     "`--config`, the variable, `cairnmq.toml` in the working directory"),
    ("CAIRNMQ_REDACT_KEY", "the key of hashes of hidden values", "`dump --redact`",
     "`--redact-key`, the variable, no key"),
    ("CAIRNMQ_COLOR", "`auto`, `always` or `never`", "all", "`--color`, the variable, `auto`"),
    ("NO_COLOR", "any text: as `--color never`", "all", "only if `--color` and `CAIRNMQ_COLOR` are `auto` or absent"),
)  # fmt: skip
END = """
`perftest --soak` starts a broker of its own, and therefore uses only `--user`.
"""


def kind_of(option: click.Option) -> str:
    """Return a readable name of the type of the option's values."""
    if option.is_flag:
        return "flag"
    if option.count:
        return "number of times"
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{one}`" for one in option.type.choices)
    if isinstance(option.type, Size | SizeRange):
        return "size"
    if isinstance(option.type, Duration):
        return "duration"
    kinds = {"integer range": "number", "float range": "number", "text": "text", "url": "URL"}
    kind = kinds.get(option.type.name, "path")
    return f"{kind}, many" if option.multiple else kind


def default_of(option: click.Option) -> str:
    """Return the default value in a readable form, or an empty string."""
    stated = re.search(r"\[default: (.*)\]", option.help or "")
    if stated is not None:
        return stated[1].replace("*", "\\*")
    default: Any = option.to_info_dict()["default"]
    return f"`{default}`" if default is not None and not option.is_flag and not option.count else ""


def page() -> str:
    """Return the complete page."""
    sections: dict[str, list[DescribedOption]] = {}
    for option in broker.described().values():
        sections.setdefault(option.subject, []).append(option)
    lines = [BEGIN, *(f"* `--{option.key}`" for option in broker.described().values() if option.can_reload), ""]
    for subject, options in sections.items():
        lines += [f"## {subject}", "", "| Option | Type | Default | Description |", "|---|---|---|---|"]
        for option in options:
            text = re.sub(r"\s*\[default: .*\]", "", option.help or "").replace("|", "\\|").replace("*", "\\*")
            text = re.sub(r"(amqp\[s\]://\S+[^.\s])", r"`\1`", text)
            lines.append(f"| `--{option.key}` | {kind_of(option)} | {default_of(option)} | {text} |")
        lines.append("")
    rows = [f"| `{name}` | {value} | {commands} | {order} |\n" for name, value, commands, order in VARIABLES]
    return "\n".join([*lines, "".join([OTHERS, *rows, END])])


if __name__ == "__main__":
    PAGE.write_text(page())
