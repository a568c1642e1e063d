"""Simulation: a disk in memory that loses power or fails on demand, and a clock that moves by explicit calls.

These parts are public. They serve programs that embed a store or the broker, and packages that provide a store of their
own, for tests without real disks and real time:

* `MemoryDirectory` is a `Directory` (`cairnmq.base.disk.seam`) in memory. It tracks which sectors and names were
  synced: `after_power_cut` returns the disk with any choice of the other changes, `after_kill` with all of them, and
  `power_cut` enumerates the choices. `on_operation` is called after each change, where a test can take copies.
* `FaultyDirectory` wraps any directory, and fails the calls for which its plan returns a `Fault`.
* `ManualClock` is a `Clock` (`cairnmq.base.clock`) that stands still until `advance`.

`cairnmq.store.conformance` tests a store against the contract, and `cairnmq.recovery.simulated_store` opens the journal
store on such a disk. The page docs/reference/stores.md has an example.
"""

from .faulty_disk import DiskCall, Fault, FaultyDirectory, Plan, ever_after, once
from .manual_clock import ManualClock
from .memory_disk import MemoryDirectory, MemoryFile, PowerCut
from .sectors import Pending

__all__ = [
    "DiskCall",
    "Fault",
    "FaultyDirectory",
    "ManualClock",
    "MemoryDirectory",
    "MemoryFile",
    "Pending",
    "Plan",
    "PowerCut",
    "ever_after",
    "once",
]
