"""Where kernels run and how they are built: Metal, or C++ compiled for this processor."""
