"""Groups of layers run by oneDNN's own interface."""

from .region import Region, Step, watched
from .regions import use_regions

__all__ = ["Region", "Step", "use_regions", "watched"]
