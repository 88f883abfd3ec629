"""Groups of layers run by oneDNN's own interface."""

from .region import Region, Step, region_of, watched
from .regions import use_regions

__all__ = ["Region", "Step", "region_of", "use_regions", "watched"]
