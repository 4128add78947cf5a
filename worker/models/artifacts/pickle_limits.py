"""Walks a pickle without running it, and refuses what would cost more than a checkpoint's index does.

`pickle` limits the names that it looks up, and nothing else: a memo index of 2^30 makes it allocate and clear
gigabytes, and a tuple that holds itself twice, sixty levels deep, is 2^60 tuples to whoever hashes it. Here
the opcodes are read one by one (`pickletools`) against a stack of sizes. Which globals are allowed is
`worker.models.artifacts.torch_checkpoint`'s business.
"""

import pickletools
from io import BytesIO
from typing import NamedTuple

from spool.errors import ModelUnreadable

OPCODES_MAX = 200_000
"""About forty describe a tensor, so this is some five thousand tensors; the walk takes a second."""
SIZE_MAX = OPCODES_MAX
"""Objects within an object, counted as often as it refers to them."""
DEPTH_MAX = 32
"""Objects within one another; hashing them recurses in C, where nothing stops it."""
TEXT_BYTES_MAX = 64 << 10
INTEGER_BYTES_MAX = 9  # a 64-bit count and its sign; longer ones can be made to collide in a dict
_TEXT = {"BINUNICODE", "SHORT_BINUNICODE"}
_INTEGERS = {"BININT", "BININT1", "BININT2"}
_PUT = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GET = {"BINGET", "LONG_BINGET"}
_ITEMS = {"SETITEM", "SETITEMS"}
_OTHERS = {"PROTO", "FRAME", "STOP", "MARK", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID"}
_OTHERS |= {"NONE", "NEWTRUE", "NEWFALSE", "LONG1", "BINFLOAT", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"}
_OTHERS |= {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS"}
_KEYS = _TEXT | _INTEGERS
_KNOWN = _KEYS | _PUT | _GET | _ITEMS | _OTHERS


class _Item(NamedTuple):
    size: int
    depth: int = 0
    is_key: bool = False
    is_mark: bool = False


def check_pickle(raw: bytes) -> None:
    """Raise ModelUnreadable unless `raw` is a pickle that loads in time and memory in proportion to it."""
    stack: list[_Item] = []
    memo: dict[int, _Item] = {}
    try:
        for count, (opcode, argument, at) in enumerate(pickletools.genops(BytesIO(raw))):
            if count >= OPCODES_MAX:
                raise ModelUnreadable(f"the checkpoint's pickle has more than {OPCODES_MAX} steps")
            if opcode.name not in _KNOWN or not _is_small(opcode.name, argument, count):
                raise ModelUnreadable(
                    f"the checkpoint's pickle has {opcode.name} ({str(argument)[:40]}) at byte {at}, which "
                    "weights do not need"
                )
            if opcode.name in _PUT:
                memo[int(len(memo) if argument is None else argument)] = stack[-1]
            elif opcode.name in _GET:
                stack.append(memo[int(argument or 0)])
            else:
                _step(opcode, stack)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise ModelUnreadable(f"the checkpoint's pickle is damaged: {error}") from error


def _is_small(name: str, argument: object, count: int) -> bool:
    if name in _PUT and isinstance(argument, int):
        return argument <= count  # picklers count from 0
    if isinstance(argument, str):
        return len(argument) <= TEXT_BYTES_MAX
    return name != "LONG1" or not isinstance(argument, int) or argument.bit_length() < 8 * INTEGER_BYTES_MAX


def _step(opcode: pickletools.OpcodeInfo, stack: list[_Item]) -> None:
    """What the opcode does to the stack, each object as the number of objects in it."""
    before = opcode.stack_before
    taken: list[_Item] = []
    if pickletools.markobject in before:
        while not (item := stack.pop()).is_mark:
            taken.append(item)
        fixed = before.index(pickletools.markobject)
    else:
        fixed = len(before)
    taken.extend(stack.pop() for _ in range(fixed))
    taken.reverse()
    if any(item.is_mark for item in taken):
        raise ValueError("a mark where an object belongs")
    if opcode.name in _ITEMS and not all(item.is_key for item in taken[1::2]):
        raise ModelUnreadable("the checkpoint's pickle has a key that is neither a name nor a number")
    size = 1 + sum(item.size for item in taken)
    depth = 1 + max((item.depth for item in taken), default=0)
    if size > SIZE_MAX or depth > DEPTH_MAX:
        raise ModelUnreadable(
            f"the checkpoint's pickle unfolds to more than {SIZE_MAX} objects or {DEPTH_MAX} levels"
        )
    if opcode.name == "MARK":
        stack.append(_Item(0, is_mark=True))
    elif opcode.stack_after:
        stack.append(_Item(size, depth, opcode.name in _KEYS))
