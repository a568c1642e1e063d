"""Execution of a documentation page from top to bottom, as by a reader.

| block | execution |
|---|---|
| `sh` | its commands run one after another, and must succeed |
| `sh` with the title `Terminal N` | its last command keeps running; the previous one in that terminal is stopped |
| `python`, `toml`, ... with a title | is saved in the file of that name |
| `python` without a title | is run |
| `text` | is the output of the block before it, or of the terminal in its title; `...` stands for any text |

`cairnmq broker` is started with free ports, which replace those of the page. A comment
`<!-- not executed: REASON -->` before a block excludes it.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.harness.process import DEADLINE_S, BrokerProcess
from tests.readme_blocks import DOCS, Block, blocks_of

_BIN = Path(sys.executable).parent
_FILES = ("python", "toml", "ini", "json")
_BROKER = re.compile(r"(?:\w+=\S* )*(?:venv/bin/)?cairnmq broker ")
_LAB = "cairnmq cluster-lab"
_PORT_OPTION = re.compile(r"--(port|tls-port|metrics-port)[ =](\d+)")
_LISTENING = {
    "port": r" listening on [^ ]*:(\d+)",
    "tls-port": r" listening with TLS on [^ ]*:(\d+)$",
    "metrics-port": r"http://[^ ]*:(\d+)/metrics",
}
"""Patterns of the broker's output for each kind of port."""


class Program:
    """A command that keeps running, and its output so far."""

    def __init__(self, command: str, place: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place,
            env={**environment, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self._output = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._output += line
                self._changed.notify_all()

    def wait_for(self, expected: str) -> None:
        """Wait until the output contains *expected*, as the page shows it."""
        pattern = _pattern(expected)
        with self._changed:
            found = self._changed.wait_for(lambda: pattern.search(self._output), DEADLINE_S)
        assert found, f"expected:\n{expected}\nfound:\n{self._output}"

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(DEADLINE_S)


class Walk:
    """A reader of one page, with a directory, terminals and brokers."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ports: dict[str, str] = {}
        self._files: dict[str, str] = {}
        """Saved files as on the page. They are saved again with the new ports when a broker starts."""
        self._terminals: dict[str, Program | BrokerProcess] = {}
        self._environment = {**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}"}
        self._last: str | Program = ""
        self._lab = f"d{secrets.token_hex(2)}"
        """Unique name of this reader's lab, so that readers can run in parallel."""

    def execute(self, block: Block) -> None:
        if block.language == "text":
            self._compare(self._terminals[block.title] if block.title else self._last, block.text)
        elif block.language in _FILES and block.title:
            self._files[block.title] = block.text
            self._save(block.title)
        elif block.language == "python":
            self._last = self._run(shlex.join([sys.executable, "-c", self._adapted(block.text)]))
        elif block.language == "sh":
            self._commands(block)

    def _save(self, name: str) -> None:
        (self.place / name).write_text(self._adapted(self._files[name]))

    def _commands(self, block: Block) -> None:
        commands = [line for line in block.commands if not line.startswith("#")]
        terminal = block.title if block.title.startswith("Terminal") else ""
        if terminal and (before := self._terminals.pop(terminal, None)):
            before.stop()
        outputs = []
        for number, command in enumerate(commands):
            if _BROKER.match(command):
                self._terminals[terminal or command] = self._start_broker(command)
            elif terminal and number == len(commands) - 1:
                program = Program(self._adapted(command), self.place, self._environment)
                self._terminals[terminal] = self._last = program
                return
            else:
                outputs.append(self._run(self._adapted(command)))
        self._last = "".join(outputs)

    def _start_broker(self, command: str) -> BrokerProcess:
        words = shlex.split(command.replace("venv/bin/cairnmq", "cairnmq"))
        environment = dict(word.split("=", 1) for word in words[: words.index("cairnmq")])
        options = words[words.index("broker") + 1 :]
        given = dict(_PORT_OPTION.findall(" ".join(options)))
        free = shlex.split(_PORT_OPTION.sub(r"--\1 0", shlex.join(options)))
        if "port" not in given:
            given["port"] = "5672"
            free += ["--port", "0"]
        store = free.index("--store-dir")
        running = BrokerProcess(
            Path(free[store + 1]), *free[:store], *free[store + 2 :], within=self._within, environment=environment
        )
        try:
            for kind, shown in given.items():
                self._ports[shown] = running.wait_for(_LISTENING[kind])[1]
            running.ready()
            for name in self._files:
                self._save(name)
        except BaseException:
            running.stop(signal.SIGKILL)
            raise
        if given["port"] == "5672":
            self._environment["CAIRNMQ_URL"] = f"amqp://127.0.0.1:{self._ports['5672']}"
        return running

    def _within(self, command: list[str]) -> list[str]:
        return ["env", "-C", str(self.place), *command]

    def _adapted(self, text: str) -> str:
        text = text.replace("venv/bin/", "").replace(_LAB, f"{_LAB} --name {self._lab}")
        return re.sub(r"(?<=:)\d{4}\b", lambda match: self._ports.get(match[0], match[0]), text)

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=self.place, env=self._environment, timeout=4 * DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def _compare(self, output: str | Program | BrokerProcess, expected: str) -> None:
        if isinstance(output, BrokerProcess):
            for line in expected.splitlines():
                output.wait_for(_pattern(line).pattern.removesuffix(r"\n"))
        elif isinstance(output, Program):
            output.wait_for(expected)
        else:
            assert _pattern(expected).search(output), f"expected:\n{expected}\nfound:\n{output}"

    def stop(self) -> None:
        for one in reversed(self._terminals.values()):
            one.stop()
        if Path("/var/lib/cairnmq-lab", self._lab).exists():
            self._run(self._adapted(f"{_LAB} down --yes"))


def _pattern(expected: str) -> re.Pattern[str]:
    """Return a pattern for the output on a page, in which runs of spaces match, as column widths vary."""
    pattern = ""
    for line in expected.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            known = [re.sub(r"(?:\\ )+", " +", re.escape(part)) for part in line.rstrip().split("...")]
            pattern += r"[^\n]*?".join(known) + r" *\n"
    return re.compile("^" + pattern, re.M)


@contextmanager
def reader(place: Path) -> Iterator[Walk]:
    walk = Walk(place)
    try:
        yield walk
    finally:
        walk.stop()


_LEFT_OUT = re.compile(r"<!-- not executed: [^>]+ -->\n+```.*?^```$", re.M | re.S)


def is_executable(block: Block) -> bool:
    return block.language == "sh" or (block.language == "python" and not block.title)


def executed_blocks(page: str) -> list[Block]:
    """Return the blocks of a page that are executed."""
    path = DOCS / page
    text = path.read_text()
    left_out = set(_LEFT_OUT.findall(text))
    return [block for block in blocks_of(path) if not any(block.text in one for one in left_out)]
