"""Ids to text, by a sentencepiece model and by a vocabulary."""

from pathlib import Path

import pytest
import tokenizers

from spool.errors import InvalidRequest, ModelUnreadable
from tests.worker.models.golden import FOLDER
from worker.models import Tokenizer, WordByteTokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(FOLDER / "hybrid" / "tokenizer.model")


def test_sizes(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary_size == tokenizer.blank == len(tokenizer.pieces) == 96
    assert tokenizer.pieces[0] == "<unk>"


def test_decode_joins_pieces_into_words(tokenizer: Tokenizer) -> None:
    the, letter = tokenizer.pieces.index("▁the"), tokenizer.pieces.index("m")
    assert tokenizer.decode([the, letter, the]) == "them the"
    assert tokenizer.decode([]) == ""


def test_a_vocabulary_alone_says_the_same(tokenizer: Tokenizer) -> None:
    listed = Tokenizer(tokenizer.pieces)
    for ids in ([5, 10, 40], list(range(1, 96)), [95]):
        assert listed.decode(ids) == tokenizer.decode(ids)


def test_byte_pieces_join_into_characters() -> None:
    listed = Tokenizer(["▁caf", "<0xC3>", "<0xA9>", "<0xFF>"])
    assert listed.decode([0, 1, 2]) == "café"
    assert listed.decode([0, 3]) == "caf\ufffd"


@pytest.mark.parametrize("ids", [[96], [-1], [3, 1000]])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer, ids: list[int]) -> None:
    with pytest.raises(IndexError, match="outside the vocabulary of 96"):
        tokenizer.decode(ids)


def test_broken_tokenizers_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"this is no protocol buffer")
    with pytest.raises(ModelUnreadable, match=r"tokenizer\.model"):
        Tokenizer.from_file(path)
    with pytest.raises(ModelUnreadable, match=r"missing\.model"):
        Tokenizer.from_file(tmp_path / "missing.model")
    with pytest.raises(ModelUnreadable, match="no vocabulary"):
        Tokenizer([])


def test_encode_is_undone_by_decode(tokenizer: Tokenizer) -> None:
    spelled = "the cat"
    bare = Tokenizer(tokenizer.pieces)

    assert tokenizer.decode(tokenizer.encode(spelled)) == spelled
    assert bare.decode(bare.encode(spelled)) == spelled
    assert all(bare.pieces[token] != "<unk>" for token in bare.encode(spelled))


def test_what_has_no_token_is_refused(tokenizer: Tokenizer) -> None:
    for one in (tokenizer, Tokenizer(tokenizer.pieces)):
        with pytest.raises(InvalidRequest, match="'the 猫' holds what the model has no token for"):
            one.encode("the 猫")


@pytest.fixture(scope="module")
def bytewise() -> WordByteTokenizer:
    path = FOLDER / "granite" / "wide" / "tokenizer.json"
    return WordByteTokenizer(tokenizers.Tokenizer.from_file(str(path)), 270, 270)


def test_bytes_are_pieces_in_sentencepieces_form(bytewise: WordByteTokenizer) -> None:
    assert {"▁the", "▁", "é", "ing", "<0xC3>", "<0x0A>"} < set(bytewise.pieces)
    assert bytewise.pieces[0] == ""
    bytewise.check({"<|blank|>": 0}, "tokenizer.json")
    assert len(set(bytewise.pieces)) == 270


def test_bytewise_words_take_the_space_before_them(bytewise: WordByteTokenizer) -> None:
    tokens = bytewise.encode("the Über, café\N{SNOWMAN} wing")
    assert bytewise.decode(tokens) == " the Über, café\N{SNOWMAN} wing"
    assert bytewise.pieces[tokens[0]] == "▁the"
    spans = bytewise.words(tokens)
    assert [span.text for span in spans] == ["the", "Über,", "café\N{SNOWMAN}", "wing"]
    assert [spans[0].first, *(span.last for span in spans)] == [0, *(s.first for s in spans[1:]), len(tokens)]
    assert bytewise.words(tokens[1:])[0].text == "Über,"
    assert bytewise.words([]) == []


def test_bytewise_special_tokens_are_no_text(bytewise: WordByteTokenizer) -> None:
    assert bytewise.decode([0, 0]) == ""
    assert bytewise.words([0]) == []
    assert 0 not in bytewise.encode("<|blank|>")
    with pytest.raises(IndexError):
        bytewise.decode([270])


def test_a_text_without_tokens_is_refused() -> None:
    few = tokenizers.Tokenizer(tokenizers.models.BPE({"<|blank|>": 0, "Ġ": 1, "a": 2}, []))
    few.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = WordByteTokenizer(few, 3, 3)
    assert tokenizer.encode("a a") == [1, 2, 1, 2]
    with pytest.raises(InvalidRequest, match="no token for"):
        tokenizer.encode("ab")
