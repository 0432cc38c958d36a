"""What one stage has to do, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Count:
    """What one stage has to do in a whole run.

    Attributes
    ----------
    bytes : read and written in main memory (of the device, for work that it does)
    operations : of floating-point numbers
    allocates : bytes of arrays that it leaves, or needs at a time if that is more
    to_device, to_host : bytes copied between host and device
    kind : "files", "python", "memory", "products", "copy" or "compile": what such a stage is made of
    calls : pieces that the work comes in, each with Python's overhead
    file_bytes : bytes read from files
    number_bytes : bytes of a number in its arithmetic: 4 or 8
    """

    bytes: float = 0.0
    operations: float = 0.0
    allocates: float = 0.0
    to_device: float = 0.0
    to_host: float = 0.0
    kind: str = "python"
    calls: int = 1
    file_bytes: float = 0.0
    number_bytes: int = 4

    def __add__(self, other: Count) -> Count:
        """Return both, one after the other: memory is needed for the larger."""
        return replace(
            self,
            bytes=self.bytes + other.bytes,
            operations=self.operations + other.operations,
            allocates=max(self.allocates, other.allocates),
            to_device=self.to_device + other.to_device,
            to_host=self.to_host + other.to_host,
        )

    def times(self, rounds: int) -> Count:
        """Return the same work done `rounds` times."""
        return replace(
            self,
            bytes=self.bytes * rounds,
            operations=self.operations * rounds,
            to_device=self.to_device * rounds,
            to_host=self.to_host * rounds,
            calls=self.calls * rounds,
        )
