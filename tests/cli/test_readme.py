"""The README's commands are true: broker, first message, dump and salvage are run as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from proton import Message, SSLDomain
from proton.utils import BlockingConnection

from tests.clients.peers import Peer
from tests.process import CAIRNMQ, DEADLINE_S, broker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
SHELL = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]


def test_the_first_message_and_a_look_inside(tmp_path: Path) -> None:
    [program] = [text for language, text in BLOCKS if language == "python" and "BlockingConnection" in text]
    start = next(line for line in SHELL if "cairnmq broker" in line)
    assert start == "venv/bin/cairnmq broker --store-dir ./data"
    with broker(tmp_path / "data") as running:
        program = program.replace('"127.0.0.1:5672"', f'"127.0.0.1:{running.port}"')
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
        assert result.stdout == "one cairn, please\n", result.stderr
        peer = Peer(running.port)  # what the sections below look at; the first program leaves nothing behind
        peer.put(peer.sender("orders"), ["another cairn"])
        peer.close()
        dump = [CAIRNMQ, "dump", str(tmp_path / "data")]
        looks = [line for line in SHELL if "cairnmq dump" in line and "|" not in line]
        assert len(looks) == 2
        for line in looks:
            command = [CAIRNMQ, *line.split()[1:]]
            dumped = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
            assert dumped.returncode == 0, dumped.stderr
            assert "orders" in dumped.stdout
        for line in (line for line in SHELL if re.search("cairnmq (verify|stat|explain|calibrate|sql) ", line)):
            command = [CAIRNMQ, *shlex.split(line)[1:]]
            asked = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
            assert (asked.returncode, asked.stderr) == (0, ""), command
            assert "calibrate" in line or "orders" in asked.stdout or "all is well" in asked.stdout, command
        records = subprocess.run([*dump, "--json"], capture_output=True, text=True, timeout=DEADLINE_S).stdout
        message = next(str(one["message_id"]) for one in map(json.loads, records.splitlines()) if one["message_id"])
        looked = []
        for line in (line for line in SHELL if "cairnmq ctl" in line and "--user" not in line):
            command = [CAIRNMQ, *shlex.split(line)[1:]]
            environment = {**os.environ, "CAIRNMQ_URL": f"amqp://127.0.0.1:{running.port}"}
            asked = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environment)
            assert (asked.returncode, asked.stderr) == (0, ""), command
            looked.append(asked.stdout)
        assert "orders" in looked[0]
        assert json.loads(looked[2])["name"] == "orders"
        assert looked[-3] == "1 messages went from queue invoices to orders\n"
        for line in (line for line in SHELL if re.search("cairnmq (backup|restore)", line)):
            command = [CAIRNMQ, *line.split()[1:]]
            done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        asks = [line for line in SHELL if re.search(r"cairnmq (trace|as-of|replay)|\|", line)]
        assert len(asks) == 6
        for line in asks:
            command = line.replace("venv/bin/cairnmq", CAIRNMQ).replace(":5672", f":{running.port}")
            command = command.replace("MESSAGE", message)
            options = {"capture_output": True, "text": True, "timeout": DEADLINE_S, "cwd": tmp_path}
            asked = subprocess.run(command, shell=True, **options)  # type: ignore[call-overload]
            assert asked.returncode == 0, (line, asked.stderr)
            assert asked.stdout
    with broker(tmp_path / "restored") as running:
        running.wait_for("^recovered 1 messages on 1 queues")
    [line] = [line for line in SHELL if "cairnmq salvage" in line]
    command = [CAIRNMQ, *line.split()[1:]]
    salvaged = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert (salvaged.returncode, salvaged.stderr) == (0, "")
    with broker(tmp_path / "salvaged") as running:
        running.wait_for(r"recovered \d+ messages on 2 queues")


def test_users_tls_and_access(tmp_path: Path) -> None:
    [rules] = [text for language, text in BLOCKS if language == "toml"]
    (tmp_path / "rules.toml").write_text(rules)
    for line in (line for line in SHELL if re.search(r"^(openssl|printf|cat) .*\.(pem|ext)", line)):
        made = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
        assert made.returncode == 0, (line, made.stderr)
    for line in (line for line in SHELL if "cairnmq users" in line):
        command = [CAIRNMQ, *line.split()[1:]]
        options = {"capture_output": True, "text": True, "timeout": DEADLINE_S, "cwd": tmp_path}
        done = subprocess.run(command, input="one stone\n", **options)  # type: ignore[call-overload]
        assert (done.returncode, done.stderr) == (0, ""), done
    [start] = [line for line in SHELL if "cairnmq broker" in line and "--tls-port" in line]
    given = start.replace("./", f"{tmp_path}/").replace("--tls-port 5671", "--tls-port 0").split()[4:]
    with broker(tmp_path / "data", *given) as running:
        port = running.wait_for(r"^listening with TLS on 127\.0\.0\.1:(\d+)$")[1]
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(tmp_path / "ca.pem"))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        connection = BlockingConnection(
            f"amqps://localhost:{port}", timeout=DEADLINE_S, ssl_domain=domain, user="anna", password="one stone"
        )
        asks = [line for line in SHELL if "ctl" in line and "--user anna" in line]
        assert len(asks) == 2
        for line in asks:
            command = shlex.split(line.replace(":5671", f":{port}"))[1:]
            environment = {
                **os.environ, "CAIRNMQ_PASSWORD": "one stone", "CAIRNMQ_URL": f"amqp://127.0.0.1:{running.port}",
            }  # fmt: skip
            asked = subprocess.run(
                [CAIRNMQ, *command], capture_output=True, text=True, timeout=DEADLINE_S, env=environment, cwd=tmp_path
            )
            assert (asked.returncode, asked.stderr) == (0, ""), line
        connection.create_sender("orders").send(Message(body="one cairn", durable=True))
        assert connection.create_receiver("orders").receive(timeout=DEADLINE_S).body == "one cairn"
        connection.close()


def test_a_transaction(tmp_path: Path) -> None:
    [program] = [text for language, text in BLOCKS if language == "python" and "declare_transaction" in text]
    with broker(tmp_path / "data") as running:
        program = program.replace('"127.0.0.1:5672"', f'"127.0.0.1:{running.port}"')
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
        assert (result.returncode, result.stderr) == (0, "")
        peer = Peer(running.port)
        for name in ("orders", "audit"):
            assert [one.body for one in peer.take(peer.receiver(name, 1))] == ["both, or none"]
        peer.cut()


def test_the_store_without_a_broker(tmp_path: Path) -> None:
    [program] = [text for language, text in BLOCKS if language == "python" and "open_store" in text]
    assert len(program.strip().splitlines()) <= 10
    for shown in ("b'ONE CAIRN, PLEASE'\n", "b'ONE CAIRN, PLEASE' b'ONE CAIRN, PLEASE'\n"):
        command = [sys.executable, "-c", program]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
        assert result.stdout == shown, result.stderr


def test_load_and_proof(tmp_path: Path) -> None:
    load, soak = [shlex.split(line) for line in SHELL if "cairnmq perftest" in line]
    with broker(tmp_path / "data") as running:
        environment = {**os.environ, "CAIRNMQ_URL": f"amqp://127.0.0.1:{running.port}"}
        options = {"capture_output": True, "text": True, "timeout": 4 * DEADLINE_S, "env": environment}
        loaded = subprocess.run([CAIRNMQ, *load[1:]], **options)  # type: ignore[call-overload]
        assert (loaded.returncode, loaded.stderr) == (0, "")
        assert "40,000 transfers of 256 bytes" in loaded.stdout
        soaked = subprocess.run([CAIRNMQ, *soak[1:]], **options)  # type: ignore[call-overload]
        assert (soaked.returncode, soaked.stderr) == (0, "")
        assert soaked.stdout.splitlines()[-1].startswith("WHOLE: ")


def test_the_packages_the_readme_names_are_the_ones_the_script_installs() -> None:
    [line] = [line for line in SHELL if "apt-get install" in line]
    assert line.split("-y ")[1].split() == (ROOT / "scripts/debian-packages").read_text().split()


def test_the_test_command_is_what_ci_runs() -> None:
    assert "make test" in SHELL
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("\nmake test")


def test_every_file_the_readme_names_is_there() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
