"""What was heard, packed and read back."""

import numpy as np
import pytest

from spool.sounds import pairs
from spool.sounds.blocks import CLASSES, FRAMES, DamagedSounds, pack_blocks, unpack_block, unpack_blocks
from spool.sounds.pairs import CELL, best_cells, make_pairs, pairs_of_phones
from spool.sounds.phones import END, PHONES, SILENCE, STEP, PhoneFrames
from tests.spool.sounds.sounds import LEXICON, hear

HEARD, _ = hear([(1.0, "the old teacher gave us three reasons"), (23.0, "nobody expected music")], 30.0)


def test_the_likeliest_classes_of_each_frame_come_back() -> None:
    blocks = pack_blocks(HEARD)
    assert len(blocks) == -(-len(HEARD.table) // FRAMES)
    back = unpack_blocks(blocks).table
    assert back.shape == HEARD.table.shape
    was = HEARD.table[:, : SILENCE + 1].copy()
    was[:, SILENCE] = np.minimum(HEARD.table[:, SILENCE], HEARD.table[:, END])
    best = was.argmin(axis=1)
    spoken = best != SILENCE
    assert spoken.sum() > 50
    assert (back[:, : SILENCE + 1].argmin(axis=1) == best)[spoken].all()
    four = np.argsort(was, axis=1, kind="stable")[spoken, :CLASSES]
    known = np.take_along_axis(was[spoken].astype(int), four, axis=1)
    read = np.take_along_axis(back[spoken].astype(int), four, axis=1)
    assert np.abs(read - known)[known < round(5.0 / STEP)].max() <= 4, "half of a step of four bits"


def test_a_flipped_byte_anywhere_is_noticed() -> None:
    block = pack_blocks(HEARD)[0]
    for at in range(len(block)):
        with pytest.raises(DamagedSounds):
            unpack_block(block[:at] + bytes([block[at] ^ 1]) + block[at + 1 :])
    for cut in (0, 3, len(block) - 1):
        with pytest.raises(DamagedSounds):
            unpack_block(block[:cut])


def test_a_word_is_in_the_cells_where_it_was_said_and_nowhere_else() -> None:
    matrix = make_pairs(unpack_blocks(pack_blocks(HEARD)).table)
    assert matrix.shape == (len(PHONES) ** 2, -(-len(HEARD.table) // CELL // 8) or 1)
    padded = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % 8)))
    rows = [padded[pair] for pair in pairs_of_phones(LEXICON.pronounce("expected")[0])]
    found = best_cells(rows, 2)
    assert set(found.tolist()) <= {11, 12}
    assert len(found)
    closed = np.full(padded.shape[1], 255, np.uint8)
    closed[1] = 0
    assert not {11, 12} & set(best_cells(rows, 2, closed).tolist())


@pytest.mark.parametrize("most", [1, 7, 100, 5000])
@pytest.mark.parametrize("rare", [0.9, 0.97, 0.999])
def test_the_best_cells_are_those_with_the_largest_sums(
    most: int, rare: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "_PIECE", 1000)
    rng = np.random.default_rng(most)
    has = rng.random((9, 64 * 9000)) > rng.uniform(rare - 0.05, rare, (9, 1))
    allowed = rng.random(has.shape[1]) > 0.1
    weights = np.array([3 if share < 0.02 else 2 if share < 0.08 else 1 for share in has.mean(axis=1)])
    sums = (has * weights[:, None]).sum(axis=0) * allowed
    found = best_cells([np.packbits(row) for row in has], most, np.packbits(allowed))
    best = np.sort(sums)[::-1][:most]
    assert len(set(found.tolist())) == len(found)
    assert sorted(sums[found], reverse=True) == best[best > 0].tolist()


def test_nothing_heard_has_no_cells() -> None:
    silence = PhoneFrames(np.zeros((0, HEARD.table.shape[1]), np.uint8))
    assert pack_blocks(silence) == []
    assert make_pairs(unpack_blocks([]).table).shape == (len(PHONES) ** 2, 0)
    assert len(best_cells([make_pairs(unpack_blocks([]).table)[0]], 5)) == 0
