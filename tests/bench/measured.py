"""What a measurement found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the report."""

    text: str
    # Whether it is as fast as it is said to be.
    holds: bool = True

    def __str__(self) -> str:
        return self.text if self.holds else f"{self.text}: TOO SLOW"
