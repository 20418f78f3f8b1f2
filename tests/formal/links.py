"""Link parameters for proofs: as few bits as show what is to be shown."""

from dataclasses import dataclass

from hdl.params import LinkParams

__all__ = ["NarrowLink"]


@dataclass(frozen=True, kw_only=True)
class NarrowLink(LinkParams):
    """A link whose flits have ``payload_bits`` bits, and whose other values may be small too.

    Payloads are moved and never looked at, so what holds for two different ones holds for all.
    """

    payload_bits: int = 2

    def __post_init__(self) -> None:
        """Take any values."""

    @property
    def flit_bits(self) -> int:
        return self.payload_bits
