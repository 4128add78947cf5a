"""The training of a language model, on a few texts and for a few steps."""

import json
from pathlib import Path

import numpy as np
import pytest

from ops.train.run.language import main, texts_of
from worker.models import LstmLanguageModel, load_reader

TOKENIZER = Path(__file__).parents[2] / "models" / "demo" / "tokenizer.model"


def speech(folder: Path) -> Path:
    lines = [{"text": f"{first} one two", "split": "train"} for first in ("bed", "cat", "happy")] * 8
    lines += [{"text": "one two three", "split": "test"}, {"text": "yes one two three no", "split": "train"}]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "more.txt").write_text("\n".join(f"Number {first}, one two!" for first in ("six", "ten") * 16))
    return folder


def test_what_is_learnt_is_likelier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = speech(tmp_path)
    asked = ["--speech", str(folder), "--out", str(tmp_path / "out"), "--tokenizer", str(TOKENIZER)]
    main([*asked, "--texts", str(folder / "more.txt"), "--steps", "40", "--width", "8", "--hidden", "16"])
    model = load_reader(tmp_path / "out")
    assert isinstance(model, LstmLanguageModel)
    spelled = [model.tokenizer.encode(text) for text in ("cat one two", "two cat one")]
    likely, unlikely = model.score(spelled)
    assert likely > unlikely + 1
    # The test texts' perplexity as training saw it: its layers and those that are read back agree.
    kept_back = [model.tokenizer.encode(text) for text in ("bed one two",)]
    told = float(capsys.readouterr().out.rsplit("perplexity ", 1)[1])
    perplexity = np.exp(-model.score(kept_back).sum() / (len(kept_back[0]) + 1))
    assert perplexity == pytest.approx(told, abs=0.01)


def test_no_sentence_of_the_test_speakers_is_learnt(tmp_path: Path) -> None:
    learnt = texts_of(speech(tmp_path), [], [])
    assert learnt == [f"{first} one two" for first in ("bed", "cat", "happy")]
