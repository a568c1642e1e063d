"""The test harness: what tests of several files share. Tests import helpers from here, and never from each other.

A sub-package per area, named as the folder of tests that uses it most. Terms: a *property* is a statement that holds
for all inputs, and a test of it draws examples; a *model* is a simple second implementation that a property compares
with; a *scenario* is a scripted course of events; a *world* is a part of the product with fakes of its surroundings.

| package | contents |
|---|---|
| `broker` | brokers in memory: queues with policies, transactions, resumable receivers |
| `store` | random histories of stores with models, spare containers, stores whose messages come and go |
| `tools`, `columns`, `analysis`, `spark`, `sidecars` | stores with a known history, and models of the answers |
| `router`, `clients`, `amqp` | connections over real sockets, and values of all AMQP types |
| `security` | users, quotas, connectors |
| `cluster` | groups, members and clients of a cluster: simulated from a seed, and real ones in a lab |
"""
