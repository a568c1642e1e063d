"""Write the pictures of the README as SVG files: the output of commands on the store of a broker.

Run `python scripts/terminal_pictures.py [DIRECTORY]` in the development environment; the default is docs/images.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from datetime import UTC, datetime
from pathlib import Path

from proton import Delivery, Message
from proton.reactor import Container
from proton.utils import BlockingConnection
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
CAIRNMQ = str(Path(sys.executable).with_name("cairnmq"))
WIDTH = 128
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: DejaVu Sans Mono, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: DejaVu Sans Mono, Menlo, Consolas, monospace; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""SVG format of rich, without fonts from another host."""


def shown(place: Path, *command: str) -> str:
    """Return the output of a command on a terminal of `WIDTH` columns, without its progress bars."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    with subprocess.Popen(
        [CAIRNMQ, *command], stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.DEVNULL, cwd=place, env=environment
    ) as process:
        os.close(its)
        output = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the command has ended
                break
            if not part:
                break
            output += part
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{command}: status {process.returncode}: {output.decode()}")
    return output.decode().replace("\r\n", "\n")


def draw(target: Path, title: str, output: str) -> None:
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(output.rstrip("\n")), soft_wrap=True)
        svg = console.export_svg(title=f"$ {title}", theme=MONOKAI, code_format=_FORMAT, unique_id=target.stem)
    target.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.M))


def work(port: int) -> str:
    """Send and receive the messages for the pictures; return a time at which four orders were on their queue."""
    container = Container()
    container.container_id = "packer-1"
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=60, container=container)
    sender = connection.create_sender("orders")
    for number in range(15, 19):
        sender.send(Message(id=f"order-{number}", body=f"{number} stones", durable=True))
    then = datetime.now(UTC).isoformat(timespec="microseconds")
    receiver = connection.create_receiver("orders", credit=1, name="packing")
    for outcome in (Delivery.ACCEPTED, Delivery.ACCEPTED, Delivery.MODIFIED, Delivery.MODIFIED):
        receiver.receive()
        receiver.fetcher.unsettled[0].local.failed = outcome == Delivery.MODIFIED
        receiver.settle(outcome)
    receiver.close()
    invoices = connection.create_sender("invoices")
    for number in range(600):
        invoices.send(Message(id=f"invoice-{number}", body="x" * 40000, durable=True))
    printer = connection.create_receiver("invoices", credit=1)
    for _ in range(150):
        printer.receive()
        printer.accept()
    connection.close()
    return then.replace("+00:00", "Z")


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        serve = [CAIRNMQ, "broker", "--store-dir", "./data", "--port", "0", "--journal-acquisitions"]
        broker = subprocess.Popen(serve, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert broker.stdout is not None
            lines = iter(broker.stdout)
            port = next(int(found[1]) for line in lines if (found := re.search(r"listening on [^ ]*:(\d+)", line)))
            next(line for line in lines if "new store" in line)
            ctl = [CAIRNMQ, "ctl", "--url", f"amqp://127.0.0.1:{port}", "queues", "create"]
            subprocess.run([*ctl, "orders.failed"], check=True, stdout=subprocess.DEVNULL)
            arguments = ["-a", "max-deliveries=2", "-a", "dead-letter-address=orders.failed"]
            subprocess.run([*ctl, "orders", *arguments], check=True, stdout=subprocess.DEVNULL)
            then = work(port)
            for picture, command in {
                "trace": ("trace", "./data", "--message-id", "order-17"),
                "as-of": ("as-of", "./data", then, "--queue", "orders"),
                "stat": ("stat", "./data"),
            }.items():
                draw(target / f"{picture}.svg", " ".join(("cairnmq", *command)), shown(place, *command))
        finally:
            broker.terminate()
            broker.communicate()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
