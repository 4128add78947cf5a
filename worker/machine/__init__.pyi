from .allocator import return_memory as return_memory
from .blas import preload_blas as preload_blas
from .hardware import (
    Hardware as Hardware,
    refuse_wrong_pool as refuse_wrong_pool,
    this_machine as this_machine,
)
from .huge_pages import start_with_huge_pages as start_with_huge_pages, with_huge_pages as with_huge_pages
