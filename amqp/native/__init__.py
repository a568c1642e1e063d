"""The C interface of proton, and buffers for it."""
