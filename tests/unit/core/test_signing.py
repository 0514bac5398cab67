"""Proofs that an operator said something: of these words, in this cluster, at this moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.signing import FRESH_MS, Signer, without_mark

KEY = "k" * 32
SIGNER = Signer("c1", KEY)
NOW_MS = 1_700_000_000_000
WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4)


@given(said=WORDS, heard=WORDS, shift_ms=st.integers(-FRESH_MS, FRESH_MS))
def test_a_proof_is_of_its_words_and_no_others(said: list[str], heard: list[str], shift_ms: int) -> None:
    """Also where words are split in another way."""
    proof = SIGNER.sign(NOW_MS, *said)

    assert (SIGNER.fault(proof, NOW_MS, NOW_MS + shift_ms, *heard) == "") == (said == heard)


@pytest.mark.parametrize("other", [Signer("c2", KEY), Signer("c1", "x" * 32)])
def test_a_proof_is_of_one_cluster_and_one_key(other: Signer) -> None:
    """Two clusters with one key do not obey each other's operators."""
    assert "signature" in SIGNER.fault(other.sign(NOW_MS, "stop"), NOW_MS, NOW_MS, "stop")


@pytest.mark.parametrize("age_ms", [FRESH_MS + 1, -FRESH_MS - 1])
def test_a_proof_grows_old(age_ms: int) -> None:
    """What was recorded is of no use later; the moment is signed too."""
    proof = SIGNER.sign(NOW_MS, "stop")

    assert "clock" in SIGNER.fault(proof, NOW_MS, NOW_MS + age_ms, "stop")
    assert "signature" in SIGNER.fault(proof, NOW_MS + age_ms, NOW_MS + age_ms, "stop")


@pytest.mark.parametrize("proof", ["", "0" * 64, "é", "\x00"])
def test_what_is_no_proof_is_refused(proof: str) -> None:
    """Without an exception: the words come from Redis."""
    assert SIGNER.fault(proof, NOW_MS, NOW_MS, "stop")


@given(by=st.text(st.characters(exclude_categories=["Cs"])), words=WORDS)
def test_a_mark_stands_behind_whatever_name(by: str, words: list[str]) -> None:
    """And comes off again for people."""
    marked = SIGNER.mark(by, NOW_MS, *words)

    assert SIGNER.fault_of_mark(marked, NOW_MS, *words) == ""
    assert SIGNER.fault_of_mark(marked + " ", NOW_MS, *words) != ""
    assert without_mark(marked) == by
    assert KEY not in repr(SIGNER)
