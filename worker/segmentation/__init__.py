"""From samples to chunks and back: where to cut, how overlaps are stitched, what makes a segment."""
