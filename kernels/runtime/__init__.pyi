from .build_cpu import (
    BuildFailed as BuildFailed,
    CPU_SHIM as CPU_SHIM,
    FAST_FLAGS as FAST_FLAGS,
    build_library as build_library,
    compiler as compiler,
)
from .device import (
    Backend as Backend,
    launch as launch,
    read_backend as read_backend,
    use_backend as use_backend,
)
from .source import (
    Argument as Argument,
    Kernel as Kernel,
    SHIM as SHIM,
    Template as Template,
    cpu_text as cpu_text,
    cuda_text as cuda_text,
    metal_text as metal_text,
)
