"""The decoder, its searches, prompts, stamps and alignment against what NeMo answered."""

import json
import re

import numpy as np
import pytest

from tests.worker.models.canary.fixtures import FLASH, SINGLE, config, golden, head, tokenizer, window
from worker.decode import AttentionSearch, KeptBeam, SearchRequest, align_words, marks_of
from worker.models import DEFAULTS, NoRules, prompt_tokens, round_vocabulary, time_stamped_words

pytestmark = pytest.mark.slow

FRAME = 0.08
# Log-probabilities of up to 80 tokens, each rounded to float32 twice.
TOLERANCE = 5e-4


def requests(keys: list[str]) -> list[SearchRequest]:
    prompts, decoder = json.loads(str(golden()["prompts"])), head()
    encoded = [window(golden()[f"dec_in.{row}"], decoder) for row in range(3)]
    asked = []
    for key in keys:
        _, row, prompt = key.split(".")[:3]
        ids, frames = tuple(prompts[prompt]["ids"]), encoded[int(row)].length
        asked.append(SearchRequest(key, encoded[int(row)], ids, limit=frames + 50 - len(ids)))
    return asked


def search(settings: KeptBeam, keys: list[str], width: int) -> dict[str, list[tuple[list[int], float]]]:
    rules = NoRules(round_vocabulary(tokenizer(SINGLE).vocabulary_size))
    answers = AttentionSearch(head(), rules, settings, width).run(requests(keys))
    return {
        str(each.key): [(list(found.tokens), found.score) for found in each.hypotheses] for each in answers
    }


def test_greedy_is_nemos() -> None:
    keys = [key for key in golden() if key.startswith("greedy.")]
    found = search(KeptBeam((3, 2)), keys[::-1], 32)
    assert len(keys) == 15
    assert {key: found[key][0][0] for key in keys} == {key: golden()[key].tolist() for key in keys}


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0), (2, 1), (4, 0), (4, 1), (8, 0), (8, 1)])
def test_every_list_is_nemos(beam: int, alpha: int) -> None:
    keys = [key for key in golden() if re.fullmatch(rf"beam\.\d\.\w+\.k{beam}\.lp{alpha}\.tok", key)]
    found = search(KeptBeam((3, 2), beam, alpha, 1), keys[::-1], 5)
    assert len(keys) == 6
    for key in keys:
        base = key.removesuffix(".tok")
        lengths, scores = golden()[f"{base}.len"], golden()[f"{base}.score"]
        expected = [row[:length].tolist() for row, length in zip(golden()[key], lengths, strict=True)]
        assert [tokens for tokens, _ in found[key]] == expected
        assert np.abs(np.array([score for _, score in found[key]]) - scores).max() < TOLERANCE


@pytest.mark.parametrize(("model", "key"), [(SINGLE, "prompts"), (FLASH, "flash_prompts")])
def test_prompts_are_nemos(model: str, key: str) -> None:
    for prompt in json.loads(str(golden()[key])).values():
        slots = {**DEFAULTS["canary2"], **config(model).defaults, **prompt["slots"]}
        assert list(prompt_tokens("canary2", slots, tokenizer(model))) == prompt["ids"]


def test_stamped_words_are_nemos_and_the_others_stay() -> None:
    expected_pairs = 0
    for row in range(3):
        tokens = golden()[f"flash_tokens.{row}"].tolist()
        words = time_stamped_words(tokens, tokenizer(FLASH), FRAME, 100.0)
        spoken = "".join(tokenizer(FLASH).decode(tokens).split())
        assert "".join("".join(word.text.split()) for word in words) == spoken
        for pair in json.loads(str(golden()[f"flash_words.{row}"]))["word"]:
            # NeMo lets a pair end before it starts; ours ends where it starts.
            own = next(word for word in words if word.text == pair["word"])
            assert round(own.start, 2) == pair["start"]
            assert round(own.end, 2) == max(pair["start"], pair["end"])
            expected_pairs += 1
    assert expected_pairs == 1


def test_alignments_are_nemos() -> None:
    marks = marks_of(tokenizer(SINGLE).pieces)
    for row in range(3):
        expected = json.loads(str(golden()[f"align.{row}"]))
        spelled = [(word, tokenizer(SINGLE).encode(word)) for word, *_ in expected["words"]]
        words = align_words(golden()[f"align_logs.{row}"], spelled, marks, FRAME)
        assert words is not None
        assert [[word.text, round(word.start, 2), round(word.end, 2)] for word in words] == expected["words"]
        tokens = [token for word in words for token in word.tokens]
        found = [[each.token, round(each.first * FRAME, 2), round(each.last * FRAME, 2)] for each in tokens]
        assert found == expected["tokens"]
