"""The corosync.conf of a lab's node, and what a lab may be asked for."""

from __future__ import annotations

from dataclasses import dataclass

SUBNET = "10.77.0"
TOKEN_MS = 1000
"""The time after which a silent member is suspected.

With 300 ms, busy machines lost each other. The default of corosync is 3000, which a real cluster should keep.
"""
MAX_NODES = 16


@dataclass(frozen=True)
class LabOptions:
    nodes: int
    token_ms: int = TOKEN_MS
    crypto: bool = True
    mtu: int = 1500


def address(node: int) -> str:
    return f"{SUBNET}.{node}"


def corosync_conf(options: LabOptions, directory: str, key_file: str) -> str:
    """For the node whose state is in *directory*."""
    if options.crypto:
        crypto = f"  crypto_cipher: aes256\n  crypto_hash: sha256\n  keyfile: {key_file}"
    else:
        crypto = "  crypto_cipher: none\n  crypto_hash: none"
    nodes = "".join(
        f"  node {{\n    nodeid: {node}\n    name: n{node}\n    ring0_addr: {address(node)}\n  }}\n"
        for node in range(1, options.nodes + 1)
    )
    return f"""\
totem {{
  version: 2
  cluster_name: lab
  transport: knet
  ip_version: ipv4
  token: {options.token_ms}
{crypto}
}}
logging {{
  to_stderr: no
  to_syslog: no
  to_logfile: yes
  logfile: {directory}/corosync.log
  timestamp: hires
}}
quorum {{
  provider: corosync_votequorum
}}
system {{
  state_dir: {directory}
  sched_rr: no
  move_to_root_cgroup: no
  allow_knet_handle_fallback: yes
}}
nodelist {{
{nodes}}}
"""
