"""One kernel body as text for three compilers: Metal, CUDA, and C++ on the CPU.

A `Kernel` is what `mx.fast.metal_kernel` takes: a body, the names of its buffers, a header. The functions
here wrap that body: `metal_text` exactly as MLX does for Apple GPUs (an internal of MLX 0.32,
`mlx/backend/common/metal_kernel.cpp`; tests/kernels/runtime/test_source.py compares the two), `cuda_text` as
`mx.fast.cuda_kernel` does, `cpu_text` as a C++ file over the headers in `shim/cpu`.

Knows nothing of arrays, compilers or machines.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1]
SHIM = Path(__file__).parent / "shim"

CPU_HEADER = "metal_names.h"
"""Every C++ file begins with it."""
# Below this many elements MLX hands Metal an input in `constant` memory, not `device`.
CONSTANT_BELOW = 8

# In the order MLX looks for them: a name found anywhere in the body becomes a parameter.
ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}
_PLAIN_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
METAL_TYPES = {name: f"{name}_t" for name in _PLAIN_TYPES} | {
    "bool": "bool",
    "float32": "float",
    "float16": "float16_t",
    "bfloat16": "bfloat16_t",
}
CUDA_TYPES = METAL_TYPES | {"float16": "__half", "bfloat16": "__nv_bfloat16"}

THREADGROUP_ARRAY = re.compile(
    r"^(\s*)threadgroup\s+([\w:]+(?:<[^<>]*>)?)\s+(\w+)\s*\[([^\]]+)\]\s*;", re.MULTILINE
)
ANNOTATION = re.compile(r" \[\[\w+(?:\(\d+\))?\]\]")
_PARAMETER = re.compile(r"(.*?)\s*(\w+)\s*\[\[(\w+)(?:\((\d+)\))?\]\]")

# A template argument is an int, a bool, or the name of a dtype.
Template = tuple[tuple[str, int | bool | str], ...]


@dataclass(frozen=True)
class Argument:
    """What the source depends on in one input: `dtype` as numpy names it, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Kernel:
    """A body in Metal with the names of its buffers, and the header it needs before it."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str
    header: str

    def wants(self, name: str) -> tuple[bool, bool, bool]:
        """Whether the body names the shape, strides and rank of an input."""
        return f"{name}_shape" in self.body, f"{name}_strides" in self.body, f"{name}_ndim" in self.body

    def attributes(self) -> list[tuple[str, str]]:
        """Thread attributes the body names: (name, type)."""
        return [(name, kind) for name, kind in ATTRIBUTES.items() if name in self.body]


def read_kernel(name: str, inputs: str, outputs: str, header: str = "") -> Kernel:
    """Read `kernels/{name}.metal`, as in `search/expand`. `inputs` and `outputs` are names separated by
    spaces; `header` is a file in the same folder that precedes the body."""
    path = FOLDER / f"{name}.metal"
    shared = Path(__file__).with_name("simd.h").read_text()
    own = path.with_name(header).read_text() if header else ""
    return Kernel(path.stem, tuple(inputs.split()), tuple(outputs.split()), path.read_text(), shared + own)


def _template_values(template: Template, types: dict[str, str]) -> list[str]:
    return [types[value] if isinstance(value, str) else str(int(value)) for _, value in template]


def _template_kind(value: int | bool | str) -> str:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "typename"


def _metal_name(kernel: Kernel, arguments: list[Argument], outputs: list[str], values: list[str]) -> str:
    name = f"custom_kernel_{kernel.name}"
    if values:
        name += "__" + "_".join(values)
    for argument in arguments:
        space = "s" if not argument.shape else "c" if argument.size < CONSTANT_BELOW else ""
        name += f"_{METAL_TYPES[argument.dtype]}{space}"
    return name + "".join(f"_{METAL_TYPES[dtype]}" for dtype in outputs)


def _metal_parameters(kernel: Kernel, arguments: list[Argument], outputs: list[str]) -> str:
    lines: list[str] = []

    def add(text: str) -> None:
        lines.append(f"  {text} [[buffer({len(lines)})]]")

    for name, argument in zip(kernel.inputs, arguments, strict=True):
        space = "constant" if argument.size < CONSTANT_BELOW else "device"
        add(f"const {space} {METAL_TYPES[argument.dtype]}{'*' if argument.shape else '&'} {name}")
        if argument.shape:
            shape, strides, rank = kernel.wants(name)
            if shape:
                add(f"const constant int* {name}_shape")
            if strides:
                add(f"const constant int64_t* {name}_strides")
            if rank:
                add(f"const constant int& {name}_ndim")
    for name, dtype in zip(kernel.outputs, outputs, strict=True):
        add(f"device {METAL_TYPES[dtype]}* {name}")
    lines += [f"  {kind} {name} [[{name}]]" for name, kind in kernel.attributes()]
    return ",\n".join(lines)


def metal_text(
    kernel: Kernel, arguments: list[Argument], outputs: list[str], template: Template
) -> tuple[str, str]:
    """The kernel's Metal name and the whole source MLX would compile for it on an Apple GPU."""
    values = _template_values(template, METAL_TYPES)
    name = _metal_name(kernel, arguments, outputs, values)
    text = kernel.header
    if template:
        text += "template <" + ", ".join(f"{_template_kind(value)} {key}" for key, value in template) + ">\n"
    text += (
        f"[[kernel]] void {name}(\n{_metal_parameters(kernel, arguments, outputs)}) {{\n{kernel.body}\n}}\n"
    )
    if template:
        instance = f"{name}<{', '.join(values)}>"
        text += f'\ntemplate [[host_name("{name}")]] [[kernel]] decltype({instance}) {instance};\n'
    return name, text


def cuda_text(
    kernel: Kernel, arguments: list[Argument], outputs: list[str], template: Template
) -> tuple[str, str]:
    """The kernel's CUDA name and source, as `mx.fast.cuda_kernel` shapes it; scalars come as pointers."""
    name = f"custom_kernel_{kernel.name}" + "".join(
        f"_{str(value).lower()[0] if isinstance(value, bool) else value}" for _, value in template
    )
    parameters: list[str] = []
    for key, argument in zip(kernel.inputs, arguments, strict=True):
        parameters.append(f"    const {CUDA_TYPES[argument.dtype]}* {key}")
        for wanted, kind in zip(
            kernel.wants(key),
            (f"Shape {key}_shape", f"Strides {key}_strides", f"int {key}_ndim"),
            strict=True,
        ):
            if wanted and argument.shape:
                parameters.append(f"    const __grid_constant__ {kind}")
    parameters += [
        f"    {CUDA_TYPES[dtype]}* {key}" for key, dtype in zip(kernel.outputs, outputs, strict=True)
    ]
    constants = ""
    for key, value in template:
        if isinstance(value, str):
            constants += f"  using {key} = {CUDA_TYPES[value]};\n"
        else:
            constants += f"  constexpr {_template_kind(value)} {key} = {str(value).lower()};\n"
    signature = ",\n".join(parameters)
    return name, (
        f"{cuda_header(kernel)}namespace mlx::core::cu {{\n\nnamespace cg = cooperative_groups;\n\n"
        f"__global__ void {name}(\n{signature}) {{\n{constants}\n{cuda_body(kernel)}\n}}\n\n"
        "} // namespace mlx::core::cu\n"
    )


def cuda_header(kernel: Kernel) -> str:
    """What `mx.fast.cuda_kernel` takes as its header: Metal's names in CUDA's terms, then our own."""
    return (SHIM / "cuda" / "prelude.h").read_text() + kernel.header


def cuda_body(kernel: Kernel) -> str:
    """The body with its threadgroup arrays in shared memory."""
    return THREADGROUP_ARRAY.sub(r"\1__shared__ \2 \3[\4];", kernel.body)


def cpu_text(kernel: Kernel, arguments: list[Argument], outputs: list[str], template: Template) -> str:
    """A C++ file with one exported function, `spool_launch`; SIMD_W says how many lanes a simdgroup has, 1 or
    32.

    A Mac may hold an input in constant memory, a CPU knows one memory: the text is the same for any size.
    """
    any_size = [Argument(each.dtype, (CONSTANT_BELOW,) if each.shape else ()) for each in arguments]
    name, text = metal_text(kernel, any_size, outputs, template)
    signature = re.search(r"\[\[kernel\]\] void \w+\((.*?)\) \{\n", text, re.DOTALL)
    assert signature
    call: list[str] = []
    for line in signature.group(1).split(",\n"):
        match = _PARAMETER.match(line.strip())
        assert match
        kind, attribute, index = match.group(1), match.group(3), match.group(4)
        if attribute == "buffer":
            kind = re.sub(r"\b(device|constant)\b", "", kind).strip()
            call.append(
                f"*({kind[:-1]}*)buffers[{index}]" if kind.endswith("&") else f"({kind})buffers[{index}]"
            )
        else:
            call.append(f"ids.{attribute}")
    text = re.sub(r"\ntemplate \[\[host_name.*", "", text)
    text = THREADGROUP_ARRAY.sub(r"\1SPOOL_THREADGROUP_ARRAY(\2, \3, \4);", text)
    text = ANNOTATION.sub("", text.replace("[[kernel]] void", "static inline SPOOL_KERNEL void"))
    values = _template_values(template, METAL_TYPES)
    instance = f"{name}<{', '.join(values)}>" if values else name
    return (
        f'#include "{CPU_HEADER}"\n#line 1 "{kernel.name}.metal"\n{text}\n'
        f'#line 1 "{kernel.name}.call"\n#include "ids.h"\n'
        "static inline SPOOL_KERNEL void spool_call(void** buffers, const ThreadIds& ids) {\n"
        f"  (void)ids;\n  {instance}({', '.join(call)});\n}}\n"
        '#include "launch.h"\n'
    )
