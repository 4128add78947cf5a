import numpy as np

from worker.diarization import FEWEST_WINDOWS, SpeakerSegment, speaker_prints


def test_windows_of_one_speaker_alone_make_their_print() -> None:
    # Windows of 1 s every 0.5 s; speaker 0 until 10 s, then speaker 1. Those over the change are nobody's.
    spans = [(at / 2, at / 2 + 1) for at in range(40)]
    first, second, mixed = np.eye(3, dtype=np.float32)
    prints = np.stack([first if end <= 10 else second if start >= 10 else mixed for start, end in spans])
    segments = [SpeakerSegment(0, 4, 0), SpeakerSegment(4, 10, 0), SpeakerSegment(10, 21, 1)]
    heard = speaker_prints(spans, prints, segments)
    assert list(heard) == [0, 1]
    np.testing.assert_allclose(
        heard[0], first, atol=1e-6
    )  # also the windows over the seam of its own segments
    np.testing.assert_allclose(heard[1], second, atol=1e-6)


def test_who_says_little_has_no_print() -> None:
    spans = [(float(at), at + 1.0) for at in range(FEWEST_WINDOWS)]
    prints = np.ones((FEWEST_WINDOWS, 4), np.float32)
    segments = [SpeakerSegment(0, FEWEST_WINDOWS - 1, 0), SpeakerSegment(FEWEST_WINDOWS - 1, 99, 1)]
    assert speaker_prints(spans, prints, segments) == {}
    assert speaker_prints([], np.zeros((0, 4), np.float32), []) == {}
