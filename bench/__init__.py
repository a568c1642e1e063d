"""The benchmark: the journal against the bare disk and embedded stores, the store under load and at a restart, the
broker under a client that is not the bottleneck.

`python -m bench` in the checkout prints one table. Everything in it was measured in that one run, in turns, so that
ratios hold where figures don't: on a busy machine, or on another one.
"""
