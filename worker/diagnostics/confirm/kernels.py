"""Compares every kernel with its reference on this machine's device, in a process of its own, so that a
kernel that aborts does not end the confirmation.

    python -m worker.diagnostics.confirm.kernels        prints one JSON object a line
"""

import json
import os
import sys

from worker.machine.blas import preload_blas


def main() -> None:
    """Each case in float32 and bfloat16; exit code 0 even if some differ."""
    preload_blas()
    # On an NVIDIA GPU MLX would round float32 to 10 bits in the references' products.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    from kernels.contracts.case import TOLERANCE, run_case
    from kernels.contracts.nn import CASES
    from kernels.runtime.device import backend

    name = str(backend())
    _print({"backend": name, "cases": len(CASES)})
    if name == "reference":
        return
    for case in CASES:
        for dtype in ("float32", "bfloat16"):
            try:
                distance, same = run_case(case, dtype, name)
            except Exception as error:  # noqa: BLE001 - whatever a compiler raises is the result
                _print(
                    {"kernel": case.name, "dtype": dtype, "error": f"{type(error).__name__}: {error}"[:500]}
                )
                continue
            allowed = max(TOLERANCE[dtype], case.slack)
            ok = distance <= allowed and same
            _print({"kernel": case.name, "dtype": dtype, "ok": ok, "distance": distance, "same_bits": same})


def _print(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
