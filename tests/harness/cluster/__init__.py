"""Harnesses of clusters: groups and members in memory from one seed, and real clusters in a lab.

A *harness* wires parts of the product together, with the disk, the clock and the network in the test's hands; a
*scenario* is one run of a harness, drawn from a seed: the same seed gives the same run.

    python -m tests.harness.cluster.simulation SEED [RUNS [hangs]]
    python -m tests.harness.cluster.real_cluster SEED [RUNS]

name the seeds that fail. The second one needs root and corosync.

| Module | Contents |
|---|---|
| `memory_bus`, `memory_group` | the group engine in memory: nodes, links and their faults, from one seed |
| `group_harness` | groups on the engine in memory or on corosync, with the same operations (`GroupHarness`) |
| `group_properties`, `total_order` | properties of every group: one suite for both engines |
| `cluster_harness` | members in one thread: stores on memory disks, a manual clock, clients (`ClusterHarness`) |
| `policy_queues`, `numbered_messages` | queues with policies, and messages that show what they are |
| `transaction_client`, `management_client` | clients of transactions and of `$management` |
| `control_recorder`, `control_samples` | recorded control messages, and a valid one of each kind |
| `divergent_state` | members that back up their divergent state in memory |
| `followed_cluster` | a cluster whose queue is followed from another site |
| `simulation` | scenarios of a simulated cluster: clients work while everything fails now and then |
| `simulated_faults`, `simulated_management`, `simulated_transactions` | the parts of these scenarios |
| `histories`, `consistency` | properties of what clients did and received, and of what members store |
| `real_cluster` | scenarios of a real cluster: corosync, brokers and clients as processes in a lab |
| `failover_client`, `reconnecting_client` | the clients of real scenarios |
| `guarantees` | properties of what these clients recorded |
| `lossy_wire` | a link that loses packets |
| `child_process` | runs a function in a forked process |
"""
