"""The test harness: what tests of several files share. Tests import helpers from here, and never from each other.

A sub-package per area, named as the folder of tests that uses it most. Terms: a *property* is a statement that holds
for all inputs, and a test of it draws examples; a *model* is a simple second implementation that a property compares
with; a *scenario* is a scripted course of events; a *world* is a part of the product with fakes of its surroundings.

| package | contents |
|---|---|
| `process`, `core_only`, `thorough` | a broker in its own process, checks of threads, amounts of exploration |
| `postgresql`, `rabbitmq` | servers that tests start for themselves |
| `journal`, `store`, `recovery` | logs, random histories of stores with models, crash states, seeded defects |
| `broker` | brokers in memory: queues with policies, transactions, resumable receivers |
| `amqp`, `router`, `clients` | values of all AMQP types, raw frames, connections over real sockets |
| `cluster` | clusters in memory and with real Corosync daemons, simulations, fail-over clients |
| `columns`, `analysis`, `sidecars`, `spark`, `export`, `tools` | stores with known histories, models of the answers |
| `security` | users, quotas, connectors, attacks and their victims |
| `kill`, `powercut`, `perftest` | runs of real processes that are killed or lose their power |
"""
