"""How kernels are built and called: device choice, source text, the CPU compiler and its shims."""
