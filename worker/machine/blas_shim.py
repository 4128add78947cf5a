"""Writes a shared library of three jumps, byte by byte.

The wheel `scipy-openblas32` exports `scipy_cblas_sgemm`; MLX looks for `cblas_sgemm`. A library whose
`cblas_sgemm` jumps to the other name connects them. It is so small that it is assembled here, after the
ELF-64 specification, without the C compiler that a fresh machine lacks. x86-64 only.
"""

import struct
from collections.abc import Mapping

PAGE = 0x1000
SYMBOL_SIZE, RELOCATION_SIZE, DYNAMIC_SIZE = 24, 24, 16
HEADER_SIZE, PROGRAM_HEADER_SIZE = 64, 56
STUB_SIZE = 16
SHARED_OBJECT, X86_64 = 3, 62
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
EXECUTE, WRITE, READ = 1, 2, 4
GLOBAL_FUNCTION = 0x12
GLOB_DAT = 6  # "put the symbol's address here"
HASH, STRTAB, SYMTAB, RELA, RELASZ, RELAENT, STRSZ, SYMENT, SONAME = 4, 5, 6, 7, 8, 9, 10, 11, 14


def shim_library(jumps: Mapping[str, str], soname: str) -> bytes:
    """The library in which each key is a jump to the symbol named by its value, wherever that is loaded."""
    names, targets = list(jumps), list(jumps.values())
    strings, offsets = _strings([*targets, *names, soname])
    count = len(names)

    hash_at = HEADER_SIZE + 4 * PROGRAM_HEADER_SIZE
    hash_table = _hash(2 * count + 1)
    symbols_at = _align_offset(hash_at + len(hash_table), 8)
    strings_at = symbols_at + (2 * count + 1) * SYMBOL_SIZE
    relocations_at = _align_offset(strings_at + len(strings), 8)
    code_at = _align_offset(relocations_at + count * RELOCATION_SIZE, STUB_SIZE)
    code_end = code_at + count * STUB_SIZE
    # The writable half is on separate pages; addresses equal file offsets throughout.
    dynamic_at = _align_offset(code_end, PAGE)
    entries = [
        (HASH, hash_at),
        (SYMTAB, symbols_at),
        (SYMENT, SYMBOL_SIZE),
        (STRTAB, strings_at),
        (STRSZ, len(strings)),
        (RELA, relocations_at),
        (RELASZ, count * RELOCATION_SIZE),
        (RELAENT, RELOCATION_SIZE),
        (SONAME, offsets[soname]),
        (0, 0),
    ]
    slots_at = dynamic_at + len(entries) * DYNAMIC_SIZE
    end = slots_at + 8 * count

    image = bytearray(end)
    image[:HEADER_SIZE] = _header()
    headers = (
        (LOAD, READ | EXECUTE, 0, code_end),
        (LOAD, READ | WRITE, dynamic_at, end - dynamic_at),
        (DYNAMIC, READ | WRITE, dynamic_at, len(entries) * DYNAMIC_SIZE),
        (STACK, READ | WRITE, 0, 0),  # no executable stack
    )
    _put(image, HEADER_SIZE, b"".join(_program_header(*header) for header in headers))
    _put(image, hash_at, hash_table)
    wanted = [_symbol(offsets[target], 0, 0) for target in targets]
    exported = [
        _symbol(offsets[name], code_at + index * STUB_SIZE, STUB_SIZE) for index, name in enumerate(names)
    ]
    _put(image, symbols_at, bytes(SYMBOL_SIZE) + b"".join(wanted + exported))
    _put(image, strings_at, strings)
    for index in range(count):
        slot, stub = slots_at + 8 * index, code_at + STUB_SIZE * index
        relocation = struct.pack("<QQq", slot, (index + 1) << 32 | GLOB_DAT, 0)
        _put(image, relocations_at + index * RELOCATION_SIZE, relocation)
        # jmp *slot(%rip): arguments stay in their registers and on the stack, untouched.
        _put(image, stub, b"\xff\x25" + struct.pack("<i", slot - (stub + 6)))
    _put(image, dynamic_at, b"".join(struct.pack("<qQ", tag, value) for tag, value in entries))
    return bytes(image)


def _align_offset(offset: int, to: int) -> int:
    return -(-offset // to) * to


def _put(image: bytearray, at: int, raw: bytes) -> None:
    image[at : at + len(raw)] = raw


def _strings(names: list[str]) -> tuple[bytes, dict[str, int]]:
    table, offsets = b"\0", {}
    for name in names:
        offsets[name] = len(table)
        table += name.encode() + b"\0"
    return table, offsets


def _hash(symbols: int) -> bytes:
    """A SysV hash table of one bucket: a chain through every symbol except the first, which is null."""
    chain = [0, *range(2, symbols), 0]
    return struct.pack(f"<{3 + symbols}I", 1, symbols, 1, *chain)


def _header() -> bytes:
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bit, little endian, version 1, System V
    sizes = (HEADER_SIZE, PROGRAM_HEADER_SIZE, 4, 64, 0, 0)
    return identity + struct.pack("<HHIQQQIHHHHHH", SHARED_OBJECT, X86_64, 1, 0, HEADER_SIZE, 0, 0, *sizes)


def _program_header(kind: int, flags: int, at: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, PAGE if kind == LOAD else 8)


def _symbol(name: int, value: int, size: int) -> bytes:
    section = 1 if value else 0  # any but "undefined": there are no sections here
    return struct.pack("<IBBHQQ", name, GLOBAL_FUNCTION, 0, section, value, size)
