"""Named places between two effects where a test may kill, stop or delay the process.

Without `SPOOL_FAILPOINTS` a failpoint is one look at an empty string. Tests alone set it, for the
processes that they start:

    SPOOL_FAILPOINTS="save.committed=kill;relay.sent=sleep:2"    action[:argument]
    SPOOL_FAILPOINTS="@/path/of/a/file"                          the same, read at each pass: armed later
    SPOOL_FAILPOINTS_FIRED=/a/folder                             where a failpoint that fires leaves a file

    kill:N    kill -9 this process at the Nth pass        stop:N   SIGSTOP it
    raise:N   raise StorageError                          sleep:S  wait S seconds

With a folder to leave its file in, each failpoint fires once among all processes that share the folder.
`NAMES` says which places there are, in the order in which a job passes them. Knows no law.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from spool import clock
from spool.errors import StorageError

VARIABLE = "SPOOL_FAILPOINTS"
FIRED = "SPOOL_FAILPOINTS_FIRED"

NAMES = {
    "upload.received": "api: the upload is whole on its own disk, nothing is stored",
    "upload.begun": "api: the store has begun an upload past the API, there is no row of it",
    "upload.joined": "api: such an upload is whole in the object store, its row says that it is open",
    "create.stored": "api: the upload is in the object store, its row is not committed",
    "create.committed": "api: the row is committed, nothing is answered or sent",
    "batch.written": "api: a block of a batch's jobs is committed, the next is not begun",
    "batch.closed": "api: all of a batch is committed, nothing is answered",
    "language_model.stored": "api: a language model's file is in the object store, its row is not committed",
    "language_model.removed": "api: a language model's row is gone, its file is still there",
    "watch.taken": "watch: a source is leased, nothing is listed",
    "watch.noted": "watch: a block of files is committed with its jobs, the lease is still held",
    "relay.taken": "relay: hints are taken from the outbox, none is sent",
    "relay.sent": "relay: hints are in Redis, their outbox rows are still there",
    "sweep.locked": "sweep: the lock is taken, nothing is swept",
    "sweep.swept": "sweep: leases are taken back and hints written, none is sent",
    "delete.marked": "deletion: rows say deleted and chunks are gone, the objects are still there",
    "delete.emptied": "deletion: the objects are gone, the log does not say so",
    "export.named": "export: a file has its name, nothing is written",
    "export.written": "export: the file is written, its row does not say so",
    "claim.committed": "worker: the job is claimed, nothing else is done",
    "source.fetched": "worker: the recording is on this machine, no chunk is made",
    "engine.loading": "engine: the model is about to be loaded",
    "engine.started": "engine: a batch is announced, nothing is computed",
    "engine.rescoring": "engine: a batch's hypotheses are there, the second model has not read them",
    "engine.computed": "engine: a batch is computed, nothing is reported",
    "engine.reported": "engine: a batch is reported, the next one is not begun",
    "save.begun": "worker: a chunk came back, nothing of it is saved",
    "save.written": "worker: chunk, cost and progress are written, the commit is not done",
    "save.committed": "worker: the chunk is committed, the worker does not know it yet",
    "align.placing": "worker: every chunk of a recording whose words are given is saved, none has its place",
    "speakers.begun": "worker: every word is saved, nobody has listened for speakers",
    "speakers.heard": "worker: a step of listening for speakers came back, no turn is committed",
    "speakers.done": "worker: the speakers are committed, no file of the transcript is stored",
    "witness.begun": "worker: every word is saved, the witness has not listened",
    "witness.heard": "worker: a window that the witness hears came back, nothing that it heard is committed",
    "witness.done": "worker: what the witness heard is committed, no file of the transcript is stored",
    "wasted.committed": "worker: wasted time is billed, the worker does not know it yet",
    "deliver.begun": "worker: a transcript's files are stored, its record is not",
    "deliver.stored": "worker: all files are stored, the row does not name them",
    "endings.written": "worker: the rows of several jobs say done, their commit is not done",
    "endings.committed": "worker: several jobs are done in one commit, their threads do not know it yet",
    "finish.written": "worker: the row says done, the commit is not done",
    "finish.committed": "worker: the job is done, the worker does not know it yet",
    "ending.written": "worker: handed back, failed or cancelled, the commit is not done",
    "ending.committed": "worker: handed back, failed or cancelled, and nobody was told",
}

_passes: Counter[str] = Counter()
_counting = clock.Lock()


def failpoint(name: str) -> None:
    """A place of this name. Does nothing unless a test has armed it."""
    if _act is not None:
        _act(name)


def install(act: Callable[[str], None] | None) -> None:
    """Call `act` at each place, with its name; None: nothing is done."""
    global _act
    _act = act


def parse_failpoints(text: str) -> dict[str, tuple[str, float]]:
    """`name=action:argument;…` as {name: (action, argument)}. Raises ValueError for what is not known."""
    armed = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, _, effect = entry.partition("=")
        action, _, argument = effect.partition(":")
        if name not in NAMES or action not in {"kill", "stop", "raise", "sleep"}:
            raise ValueError(f"{entry!r} is not a failpoint")
        armed[name] = (action, float(argument or 1))
    return armed


def _act_as_armed(name: str) -> None:
    action, argument = _read_failpoints().get(name, ("", 0.0))
    if not action:
        return
    with _counting:
        _passes[name] += 1
        if (action != "sleep" and _passes[name] != argument) or not _first_among_processes(name):
            return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "sleep":
        clock.sleep(argument)
    else:
        raise StorageError(f"The failpoint {name} was reached.")


def _read_failpoints() -> dict[str, tuple[str, float]]:
    path = _ARMED.removeprefix("@")
    if path == _ARMED:
        return parse_failpoints(_ARMED)
    try:
        return parse_failpoints(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _first_among_processes(name: str) -> bool:
    folder = os.environ.get(FIRED)
    if folder is None:
        return True
    try:
        Path(folder, name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


_ARMED = os.environ.get(VARIABLE, "")
_act: Callable[[str], None] | None = _act_as_armed if _ARMED else None
