"""Tokens become text as soon as it is certain, in any script, and never half a character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizer of answers isn't installed")

from handrail.runtime.wording.detokenise import UNREADABLE, Detokeniser  # noqa: E402
from handrail.streams.cache import cache_folder  # noqa: E402

ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def byte_level(*merges: bytes) -> tokenizers.Tokenizer:
    """A token a byte, and two bytes together that begin in one character and end in the next."""
    letter = dict(zip(sorted(range(256), key=lambda b: letter_of(b)), ALPHABET, strict=True))
    pairs = [tuple(letter[b] for b in m) for m in merges]
    vocab = {c: i for i, c in enumerate([*ALPHABET, *("".join(p) for p in pairs)])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=pairs))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    return made


def letter_of(byte: int) -> str:
    """GPT-2's letter for a byte: itself where it prints, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte) if byte in printable else chr(256 + [b for b in range(256) if b not in printable].index(byte))


def sentence_piece() -> tokenizers.Tokenizer:
    """As Gemma's and Llama's: words with their space in front, unknown characters as bytes, the first space dropped."""
    words = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *"abcdefghij.", "▁a", "▁b"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={w: i for i, w in enumerate(words)}, merges=[("▁", "a"), ("▁", "b")], byte_fallback=True,
        unk_token="<unk>", fuse_unk=True))  # fmt: skip
    d = tokenizers.decoders
    made.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")])  # fmt: skip
    made.decoder = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    made.add_special_tokens(["<end>"])
    return made


def cached(name: str) -> tokenizers.Tokenizer | None:
    path = cache_folder("models") / name / "tokenizer.json"
    return tokenizers.Tokenizer.from_file(str(path)) if path.is_file() else None


def pieces(decode: object, ids: list[int]) -> list[str]:
    made = Detokeniser(decode)  # type: ignore[arg-type]
    return [*(made.add(i) for i in ids), made.end()]


BYTES, STRADDLING, PIECES = byte_level(), byte_level(b"\x80\xe4", b"\xa0\xe4", b"\xbd\xa0"), sentence_piece()
SCRIPTS = st.text(st.sampled_from("ab .éßжשع猫你䀀한ก🦮👩‍🦯🇬🇧\u0301\n"), max_size=60)
TEXTS = st.one_of(SCRIPTS, st.text(max_size=60))


@pytest.mark.parametrize("made", [BYTES, STRADDLING], ids=["bytes", "straddling"])
@given(TEXTS, st.integers(0, 240))
def test_pieces_cut_anywhere_are_the_text_without_the_unfinished_character(made: object, text: str, cut: int) -> None:
    ids = made.encode(text).ids[:cut]  # type: ignore[attr-defined]
    out = pieces(made.decode, ids)  # type: ignore[attr-defined]
    assert "".join(out) == made.decode(ids).replace(UNREADABLE, "")  # type: ignore[attr-defined]
    assert text.replace(UNREADABLE, "").startswith("".join(out))


@given(st.lists(st.integers(0, 255), max_size=120))
def test_bytes_that_make_no_character_are_dropped_and_lose_no_other(ids: list[int]) -> None:
    assert "".join(pieces(BYTES.decode, ids)) == BYTES.decode(ids).replace(UNREADABLE, "")


@given(st.text(st.sampled_from("ab ."), min_size=1, max_size=30), st.lists(st.sampled_from("你猫🦮é a."), max_size=12))
def test_spaces_and_bytes_of_sentence_pieces_come_through(first: str, more: list[str]) -> None:
    text = first + "".join(more)
    out = pieces(PIECES.decode, PIECES.encode(text).ids)
    assert "".join(out) == PIECES.decode(PIECES.encode(text).ids) == text


@given(st.lists(st.sampled_from(range(len(ALPHABET))), max_size=40), st.integers(0, 39))
def test_special_tokens_change_nothing(ids: list[int], place: int) -> None:
    end = BYTES.token_to_id("<end>")
    assert "".join(pieces(BYTES.decode, ids + [end] * 30)) == "".join(pieces(BYTES.decode, ids))
    words = PIECES.encode("a b a").ids
    assert "".join(pieces(PIECES.decode, [words[0], PIECES.token_to_id("<end>"), *words[1:]])) == "a b a"


@pytest.mark.parametrize("name", ["qwen3-tokenizer", "gemma3-tokenizer"])
def test_published_tokenizers_give_their_text_piece_by_piece(name: str) -> None:
    made = cached(name)
    if made is None:
        pytest.skip(f"{name} isn't in the cache (handrail models fetch {name})")

    @given(TEXTS, st.integers(0, 240))
    def holds(text: str, cut: int) -> None:
        ids = made.encode(text, add_special_tokens=False).ids
        whole = "".join(pieces(made.decode, ids))
        assert whole == made.decode(ids).replace(UNREADABLE, "")
        part = "".join(pieces(made.decode, ids[:cut]))
        assert whole.startswith(part)

    holds()


@given(TEXTS)
def test_each_token_is_read_a_bounded_number_of_times(text: str) -> None:
    lengths: list[int] = []

    def decode(ids: list[int]) -> str:
        lengths.append(len(ids))
        return str(STRADDLING.decode(ids))

    ids = STRADDLING.encode(text + "\N{CAT FACE}").ids * 3
    made = Detokeniser(decode)
    for i in ids:
        piece = made.add(i)
        assert UNREADABLE not in piece
    assert max(lengths) <= 34 and len(lengths) <= 2 * len(ids)
