"""Three real members, of which one has a small disk: it ends and says so, and the others confirm what clients send."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.tools.cluster_lab import why_not
from cairnmq.tools.cluster_lab_conf import address

from .real import PATIENCE_S, PORT, a_life

SMALL = "24m"
BODY = b"x" * 20_000
MORE_THAN_FIT = 1300


@pytest.mark.timeout(900)
def test_a_member_whose_disk_is_full(tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    small = tmp_path / "store3"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", small], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        with a_life(tmp_path) as life:
            with life.lab.inside(1):
                client = BlockingConnection(
                    f"amqp://{address(1)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS"
                )
            sender = client.create_sender("q")
            full = life.brokers[3]
            for _ in range(MORE_THAN_FIT):
                sender.send(Message(body=BODY, durable=True))
            client.wait(lambda: full.process.poll() is not None, PATIENCE_S)
            assert full.process.returncode
            for _ in range(50):
                sender.send(Message(body=BODY, durable=True))
            full.wait_for(r"cluster 's1': its disk is full: .*; free some space, and start this broker")
            assert all(life.brokers[node].process.poll() is None for node in (1, 2))
            client.close()
    finally:
        subprocess.run(["umount", "-l", small], check=True)
