"""Computes the host's part of waiting utterances while the device runs others: a bounded queue and a thread.

What a model computes before anything goes to the device (`Front`: on a CPU the spectra, for WeNet the filter
bank) needs only the samples, so it is done in the order of arrival rather than batch by batch: forming
batches early would cost fairness and size. It runs only while a batch runs, to which its time belongs (law
5), and never for an utterance that is suspected of crashing the process. Touches no MLX.
"""

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from spool import clock
from worker.engine.protocol import Utterance

Front = Callable[[NDArray[np.float32]], NDArray[np.float32] | None]
"""From an utterance's samples to what the model takes in their place, bit-identical to what it would compute;
None if there are too few samples. Called outside the model's thread, so it must not use MLX."""

MOST_BYTES = 256 << 20


class WorkAhead:
    """The fronts' outputs for waiting utterances, by ticket. Thread-safe; `start` it once."""

    def __init__(
        self, read: Callable[[Utterance], NDArray[np.float32]], most_bytes: int = MOST_BYTES
    ) -> None:
        """`read` returns the samples of a waiting utterance. No utterance is started while the outputs hold
        `most_bytes`."""
        self._read = read
        self._most_bytes = most_bytes
        self._changed = clock.Condition()
        self._waiting: dict[int, Utterance] = {}
        self._kept: dict[int, tuple[str, NDArray[np.float32]]] = {}
        self._doing: int | None = None
        self._batches = 0  # on the device; 2 while live steps interrupt a batch of jobs
        self._fronts: dict[str, Front] = {}

    def start(self) -> None:
        """Start the thread."""
        clock.Thread(target=self._run, name="engine-ahead", daemon=True).start()

    def serve(self, model: str, front: Front | None) -> None:
        """Use this front for the model from now on; None stops working ahead for it. Outputs of an earlier
        front are dropped."""
        with self._changed:
            self._fronts.pop(model, None)
            self._kept = {ticket: each for ticket, each in self._kept.items() if each[0] != model}
            self._doing = None
            if front is not None:
                self._fronts[model] = front
            self._changed.notify_all()

    def offer(self, utterance: Utterance) -> None:
        """Add an utterance that waits for the device."""
        if utterance.alone or utterance.control or utterance.request.step is not None:
            return
        with self._changed:
            self._waiting[utterance.ticket] = utterance
            self._changed.notify_all()

    def forget(self, tickets: Sequence[int]) -> None:
        """Remove utterances that no longer wait."""
        with self._changed:
            for ticket in tickets:
                self._waiting.pop(ticket, None)
                self._kept.pop(ticket, None)
            if self._doing in tickets:
                self._doing = None
            self._changed.notify_all()

    def begin_batch(self, tickets: Sequence[int]) -> list[NDArray[np.float32] | None]:
        """Begin a batch: the front's output for each of its utterances, waiting for one in progress; None for
        those that the model must compute itself."""
        with self._changed:
            self._batches += 1
            for ticket in tickets:
                self._waiting.pop(ticket, None)
            self._changed.wait_for(lambda: self._doing not in tickets)
            kept = [self._kept.pop(ticket, None) for ticket in tickets]
            self._changed.notify_all()
        return [None if each is None else each[1] for each in kept]

    def end_batch(self) -> None:
        """The batch begun last has left the device."""
        with self._changed:
            self._batches -= 1

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next() is not None)
                utterance = self._next()
                assert utterance is not None
                front = self._fronts[utterance.model]
                del self._waiting[utterance.ticket]
                self._doing = ticket = utterance.ticket
            spectra = None
            with contextlib.suppress(Exception):  # the model will raise it again, for the right utterance
                spectra = front(self._read(utterance))
            with self._changed:
                if self._doing == ticket and spectra is not None:
                    self._kept[ticket] = (utterance.model, spectra)
                self._doing = None
                self._changed.notify_all()

    def _next(self) -> Utterance | None:
        """The utterance that has waited longest, of those that may be started now."""
        if not self._batches or sum(output.nbytes for _, output in self._kept.values()) >= self._most_bytes:
            return None
        return next((each for each in self._waiting.values() if each.model in self._fronts), None)
