"""Tests of the soak: PASSED for a correct broker, FAILED for defective ones, and partial results if interrupted."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cairnmq.base.errors import BrokerError
from cairnmq.tools.lab.disks import unavailable_reason
from cairnmq.tools.soak.client_processes import ClientProcesses
from cairnmq.tools.soak.wire import Settings
from tests.harness import rabbitmq
from tests.harness.perftest.commands import hear_signals, kept
from tests.harness.process import CAIRNMQ

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0
OURS = "from cairnmq.cli.main import main; main()"
POWER = pytest.mark.skipif(bool(unavailable_reason("ext4")), reason=unavailable_reason("ext4"))


def begin(*options: str, **more: Any) -> subprocess.Popen[str]:
    command = [CAIRNMQ, "perftest", "--durable", "yes", "--rate", "300", "--kill-every", "2s", *options]
    more = {"preexec_fn": hear_signals, **more}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, **more)


def soak(*options: str, status: int = 0, **more: Any) -> tuple[dict[str, Any], str]:
    """Run the soak, and return its JSON document and its standard error."""
    running = begin("--json", *options, **more)
    try:
        output, errors = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert running.returncode == status, (output[:3000], errors)
    found: dict[str, Any] = json.loads(output)
    return found, errors


def defects(found: dict[str, Any]) -> dict[str, int]:
    return {name: number for name, number in found["defects"].items() if number}


@pytest.mark.parametrize("options", [(), ("--tx", "8")], ids=["messages", "transactions"])
def test_a_broker_that_is_killed_keeps_its_promise(tmp_path: Path, options: tuple[str, ...], tell: Any) -> None:
    plot = tmp_path / "soak.png"
    found, _ = soak("--soak", "12s", "--plot", str(plot), "--work-dir", str(tmp_path), *options)
    assert (found["verdict"], found["complete"], defects(found)) == ("passed", True, {}), found["stories"]
    assert found["kills"]["running"] >= 1
    assert found["confirmed"] > 100
    assert found["consumed"] > 100
    assert max(sample["log_bytes"] for sample in found["samples"]) > 1 << 20
    confirmed = [sample["confirmed"] for sample in found["samples"]]  # the number of live messages may be 0 at a sample
    assert sorted(confirmed) == confirmed
    assert confirmed[-1] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [plot], "histories of a soak that passed are not kept"
    tell(f"soak: {sum(found['kills'].values())} kills, {found['confirmed']} messages confirmed, seed {found['seed']}")


@POWER
def test_power_cuts_are_kept_out_of_what_was_confirmed() -> None:
    found, _ = soak("--soak", "8s", "--power-cut", "--seed", "5")
    assert (found["verdict"], defects(found)) == ("passed", {}), found["stories"]
    assert found["kills"]["power_cuts"] >= 1


@POWER
def test_a_broker_that_confirms_before_it_syncs_is_found(tmp_path: Path) -> None:
    lie = "from cairnmq.base.disk.real import RealFile; RealFile.sync = lambda self: None; "
    start = f'{sys.executable} -c "{lie}{OURS}" broker --port {{port}} --store-dir {{store_dir}}'
    found, _ = soak(
        "--soak", "15s", "--power-cut", "--start-command", start, "--work-dir", str(tmp_path), "--seed", "5", status=1
    )
    # either messages are lost, or the unsynced journal cannot be opened
    assert found["verdict"] == "failed"
    assert found["defects"]["lost"] > 0 or "the broker" in found["stopped_by"]
    assert found["kills"]["power_cuts"] >= 1


def test_a_broker_that_loses_messages_is_found(tmp_path: Path) -> None:
    start = f"{sys.executable} -m tests.harness.perftest.losing_broker {{port}} {{store_dir}}"
    running = begin("--soak", "10s", "--start-command", start, "--work-dir", str(tmp_path), env={
        **os.environ, "PYTHONPATH": str(ROOT)
    })  # fmt: skip
    output, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, errors
    lines = output.splitlines()
    assert lines[-1].startswith("FAILED: ")
    assert " 0 lost" not in lines[-1]
    assert any(line.startswith("lost: ") for line in lines)
    [place] = [line.rpartition(": ")[2] for line in lines if line.startswith("histories and the broker's output: ")]
    assert list(Path(place).glob("epoch*/*.jsonl"))


@pytest.mark.skipif(bool(rabbitmq.denial_reason()), reason=rabbitmq.denial_reason())
def test_another_broker_is_put_to_the_same_test(tmp_path: Path, tell: Any) -> None:
    """The soak kills and restarts RabbitMQ and checks its clients' histories; the verdict is not asserted."""
    other = rabbitmq.RabbitMq(tmp_path / "node")
    options = ("--ready-address", f"127.0.0.1:{other.port}", "--user", rabbitmq.USER, "--queue-durable", "yes")
    running = begin(
        "--json", "--soak", "25s", "--kill-every", "6s", "--rate", "100", "--queue-address", rabbitmq.QUEUE_ADDRESS,
        "--start-command", other.command(), "--work-dir", str(tmp_path), *options,
        env={**os.environ, "CAIRNMQ_PASSWORD": rabbitmq.PASSWORD},
    )  # fmt: skip
    output, errors = running.communicate(timeout=PATIENCE_S)
    other.end_mapper()
    assert running.returncode in (0, 1), errors
    found = json.loads(output)
    assert found["complete"], found["stopped_by"]
    assert found["kills"]["running"] >= 1
    assert found["confirmed"] > 100
    assert found["consumed"] > 100
    tell(f"soak of RabbitMQ: {found['verdict']}, {found['confirmed']} messages confirmed, {defects(found)}")


def test_a_broker_that_does_not_come_back_is_told_and_the_part_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    once = "test -e {store_dir}/up && echo no more && exit 7; touch {store_dir}/up"
    start = f'sh -c \'{once}; exec {sys.executable} -c "{OURS}" broker --port {{port}} --store-dir {{store_dir}}/s\''
    options = ("--soak", "90s", "--kill-every", "8s", "--to", str(path), "--work-dir", str(tmp_path))
    found, _ = soak(*options, "--start-command", start, status=1)
    assert kept(path) == found
    assert not found["complete"]
    assert found["stopped_by"] == "the broker: it ended by itself (status 7): no more"
    assert found["kills"]["running"] == 1
    assert found["confirmed"] > 0


def test_full_disk_for_histories_is_told_and_the_part_is_kept(tmp_path: Path) -> None:
    found, _ = soak(
        "--soak", "150s", "--kill-every", "30s", "--rate", "3000", "--broker-options", "--container-size 524288",
        "--work-dir", str(tmp_path), status=1,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000)),
    )  # fmt: skip
    assert "File too large" in found["stopped_by"]
    assert not found["complete"]
    assert (found["verdict"], defects(found)) == ("passed", {}), found["stories"]


def test_all_clients_that_ended_by_themselves_are_known(tmp_path: Path) -> None:
    """All clients that ended by themselves are recorded, as several may fail at once, for example on a full disk."""
    crew = ClientProcesses(Settings("", "soak", "7", "", ["a"]), tmp_path, 1, 2)
    for client in crew.clients[1:]:
        client.process.terminate()
        client.process.wait()
    with pytest.raises(BrokerError):
        crew.counted()
    crew.kill()
    assert sorted(crew.failed) == [client.settings.name for client in crew.clients[1:]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_what_there_is_and_leaves_no_broker(tmp_path: Path, number: signal.Signals) -> None:
    running = begin("--soak", "10m", "--work-dir", str(tmp_path))
    deadline_s = time.monotonic() + PATIENCE_S
    while not any("Confirmed" in path.read_text() for path in tmp_path.glob("*/epoch1/*.jsonl")):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert processes_about(tmp_path)
    running.send_signal(number)
    output, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 128 + number, (output, errors)
    assert "Traceback" not in errors
    assert not processes_about(tmp_path)
    assert output.splitlines()[-1].startswith("PASSED (partial: interrupted): ")


def processes_about(place: Path) -> list[str]:
    """Return the commands with a path below *place*: brokers by their stores, clients by their histories."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{place}/" in words:
            found.append(words)
    return found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--soak", "10s", "--to", "/nowhere/soak.json"), "--to /nowhere/soak.json: it can't be written"),
        (("--soak", "10s", "--to", "/proc/soak.json"), "--to /proc/soak.json: it can't be written"),
        (("--soak", "10s", "--work-dir", "/proc"), "--work-dir /proc: it can't be written"),
        (("--soak", "10s", "--store-dir", "/proc/x"), "--store-dir /proc/x: it can't be written"),
        (("--soak", "10s", "--plot", "/proc/soak.png"), "--plot /proc/soak.png: it can't be written"),
        (("--soak", "10s", "--durable", "no"), "use --durable yes"),
        (("--soak", "ten"), "--soak ten: invalid duration"),
        (("--soak", "10s", "--publish"), "leave out the roles"),
        (("--soak", "10s", "--nsubs", "0"), "at least one publisher and one subscriber"),
        (("--soak", "10s", "--store-dir", str(ROOT)), "is not empty"),
        (("--soak", "10s", "--ready-address", "127.0.0.1:5"), "for brokers of a --start-command"),
        (("--soak", "10s", "--start-command", "start {stor}"), "has braces besides"),
        (("--soak", "10s", "--plot", "soak.gif"), "its name ends in none of .png, .svg and .pdf"),
        (("--soak", "10s", "--power-cut", "--store-dir", "x"), "leave out --store-dir"),
    ],
)
def test_wrong_calls_end_with_status_2(options: tuple[str, ...], words: str) -> None:
    if "--power-cut" in options and unavailable_reason("ext4"):
        pytest.skip(unavailable_reason("ext4"))
    done = begin(*options)
    output, errors = done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 2, (output, errors)
    assert words in " ".join(errors.split())
