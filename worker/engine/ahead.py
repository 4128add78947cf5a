"""The host's share of utterances that wait, done while the device runs others: a bounded queue and a thread.

What a model does with samples before anything goes to the device (`Front`: on a CPU the spectra, for WeNet
the filter bank) needs nothing but the samples, so it is done in the order of arrival and not batch by batch:
forming batches early would cost their fairness and size. It runs beside a batch only, in whose time it is
(law 5), and never for an utterance that is suspected of ending the process. Touches no MLX; whose turn it is
and what a batch holds is others' business (`worker.engine.scheduler`).
"""

import contextlib
import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from worker.engine.protocol import Utterance

Front = Callable[[NDArray[np.float32]], NDArray[np.float32] | None]
"""From an utterance's samples to what the model takes in their place, the same bits as without it; None where
it makes none of so few. Called from another thread than the model's, so it may hold nothing of MLX."""

MOST_BYTES = 256 << 20


class WorkAhead:
    """What was made of waiting utterances, by ticket. Thread-safe; `start` it once."""

    def __init__(
        self, read: Callable[[Utterance], NDArray[np.float32]], most_bytes: int = MOST_BYTES
    ) -> None:
        """`read` gives the samples of an utterance that waits. No utterance is begun while what is kept holds
        `most_bytes`."""
        self._read = read
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._waiting: dict[int, Utterance] = {}
        self._kept: dict[int, tuple[str, NDArray[np.float32]]] = {}
        self._doing: int | None = None
        self._batches = 0  # on the device: one, or one between the layers of another
        self._fronts: dict[str, Front] = {}

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="engine-ahead", daemon=True).start()

    def serve(self, model: str, front: Front | None) -> None:
        """Work ahead with this model's front from now on; without one, no more. What another front of its
        name has made is dropped."""
        with self._changed:
            self._fronts.pop(model, None)
            self._kept = {ticket: each for ticket, each in self._kept.items() if each[0] != model}
            self._doing = None
            if front is not None:
                self._fronts[model] = front
            self._changed.notify_all()

    def offer(self, utterance: Utterance) -> None:
        """An utterance waits for the device."""
        if utterance.alone or utterance.control or utterance.ask.step is not None:
            return
        with self._changed:
            self._waiting[utterance.ticket] = utterance
            self._changed.notify_all()

    def forget(self, tickets: Sequence[int]) -> None:
        """These utterances wait no longer."""
        with self._changed:
            for ticket in tickets:
                self._waiting.pop(ticket, None)
                self._kept.pop(ticket, None)
            if self._doing in tickets:
                self._doing = None
            self._changed.notify_all()

    def begin_batch(self, tickets: Sequence[int]) -> list[NDArray[np.float32] | None]:
        """What there is for each utterance of the batch that the device runs now, once one of them that is
        just being worked on is done; None for those that the model has to do."""
        with self._changed:
            self._batches += 1
            for ticket in tickets:
                self._waiting.pop(ticket, None)
            self._changed.wait_for(lambda: self._doing not in tickets)
            kept = [self._kept.pop(ticket, None) for ticket in tickets]
            self._changed.notify_all()
        return [None if each is None else each[1] for each in kept]

    def end_batch(self) -> None:
        """The batch begun last is no more on the device."""
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
            with contextlib.suppress(Exception):  # the model meets it again, and says whose fault it is
                spectra = front(self._read(utterance))
            with self._changed:
                if self._doing == ticket and spectra is not None:
                    self._kept[ticket] = (utterance.model, spectra)
                self._doing = None
                self._changed.notify_all()

    def _next(self) -> Utterance | None:
        """The one that has waited longest, of those that may be begun now."""
        if not self._batches or sum(made.nbytes for _, made in self._kept.values()) >= self._most_bytes:
            return None
        return next((each for each in self._waiting.values() if each.model in self._fronts), None)
