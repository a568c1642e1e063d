"""Benchmarks of the journal against the bare disk and embedded stores, of the store under load and at a restart, and
of the broker with a client that is not the bottleneck.

`python -m bench` in the checkout prints one table. All its figures are measured in the same run, in turns, so that
ratios are comparable between machines and on a busy machine, in contrast to absolute figures.
"""
