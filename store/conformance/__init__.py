"""The properties of every message store, as a test suite for stores of the project and of others. See `suite`."""

from .model import StoreMaker
from .suite import StoreConformance, StoreMachine, Subject

__all__ = ["StoreConformance", "StoreMachine", "StoreMaker", "Subject"]
