"""Programs that read aloud: every one that this machine has."""

from collections.abc import Callable

import numpy as np
import pytest

from ops.train.data import engines, synth
from ops.train.data.features import RATE, Audio
from ops.train.data.voices import FLITE, PICO, PICO_FOREIGN

TEXT = "mark isn't going to see the elephant"
Say = Callable[[str, str, np.random.Generator], Audio | None]
VOICES: list[tuple[Say, str]] = [(engines.say, "en-us+f2"), (engines.say, "de+m3")]
VOICES += [(engines.say_flite, voice) for voice in FLITE if engines.has_flite()]
VOICES += [(engines.say_pico, voice) for voice in (*PICO, *PICO_FOREIGN.values()) if engines.has_pico()]


@pytest.mark.parametrize(("say", "voice"), VOICES)
def test_a_voice_says_the_same_for_the_same_draw_and_otherwise_for_another(say: Say, voice: str) -> None:
    first, again, other = (say(TEXT, voice, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, again)
    assert len(first) != len(other)
    # Seven words take a second to six, and silence of known length lies before and after them.
    assert 1.0 < len(first) / RATE < 7.0
    assert not first[:300].any()
    assert not first[-300:].any()
    assert 0.01 < np.abs(first).max() < 1.5


def test_a_voice_that_the_program_lacks_gives_nothing() -> None:
    assert engines.say(TEXT, "xx-unknown", np.random.default_rng(1)) is None


def test_texts_are_shared_among_the_engines_that_are_there() -> None:
    clips = (synth.utter((3, number, TEXT)) for number in range(60))
    voices = {voice for voice, _ in filter(None, clips)}
    of_espeak = {voice for voice in voices if "+" in voice}
    assert len(of_espeak) > 20
    assert bool(voices & set(FLITE)) == engines.has_flite()
    assert bool(voices & set(PICO)) == engines.has_pico()
    assert voices <= of_espeak | set(FLITE) | set(PICO)
