"""Secure aggregation: single uploads look random, sums are exact, drop-outs are made good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from overheard.errors import FixConfig
from overheard.federation.config import parse_config
from overheard.federation.defences.contract import RoundContext
from overheard.federation.defences.secure_sum import (
    PRIME,
    SecureSum,
    agree,
    as_numbers,
    as_words,
    joined,
    mask,
    masked,
    split,
    unmasked,
)
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.randomness import stream
from overheard.transcript.knowledge import Link, Sums
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER

STEP = 2.0**-32


def updates(clients: int = 8, size: int = 20_000) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 0.01, (clients, size))


def in_round(number: int, clients: int) -> RoundContext:
    return RoundContext(number, np.arange(clients), np.random.default_rng(0))


def test_a_single_masked_upload_is_indistinguishable_from_random() -> None:
    plain = updates()
    uploads = masked(as_words(plain, 32), agree(8, 6, np.random.default_rng(2)))
    for own, upload in zip(plain, uploads, strict=True):
        shares = upload / 2.0**64
        assert stats.kstest(shares, "uniform").pvalue > 1e-4
        low = np.bincount((upload & np.uint64(255)).astype(int), minlength=256)
        assert stats.chisquare(low).pvalue > 1e-4
        for other in plain:
            assert abs(stats.pearsonr(shares, other).statistic) < 0.035  # 5 sd
        assert stats.pearsonr(np.abs(shares - 0.5), np.abs(own)).pvalue > 1e-4
    # the same update under other keys is another upload, bit by bit
    again = masked(as_words(plain, 32), agree(8, 6, np.random.default_rng(3)))
    same = np.unpackbits((uploads[0] ^ again[0]).view(np.uint8)).mean()
    assert same == pytest.approx(0.5, abs=0.005)


def test_the_same_tests_find_an_upload_without_a_mask() -> None:
    """The test above could not fail if this one did."""
    plain = updates()
    bare = as_words(plain, 32)
    assert stats.kstest(bare[0] / 2.0**64, "uniform").pvalue < 1e-10
    pairs = masked(bare, agree(8, 6, np.random.default_rng(2)))
    assert abs(stats.pearsonr((bare[0] - bare[1] + pairs[1]) / 2.0**64, plain[0]).statistic) < 0.035
    signed = bare[0].view(np.int64).astype(float)
    assert stats.pearsonr(signed, plain[0]).statistic > 0.999


@pytest.mark.parametrize("bits", [16, 32, 40])
def test_sums_are_exact_to_the_step(bits: int) -> None:
    plain = np.round(updates(5, 300) * 2.0**bits) * 2.0**-bits
    total, who = SecureSum(step_bits=bits).total(plain, in_round(0, 5))
    assert np.array_equal(total, plain.sum(axis=0))  # whole multiples of the step add exactly
    assert who.tolist() == [0, 1, 2, 3, 4]
    rough = updates(5, 300)
    total, _ = SecureSum(step_bits=bits).total(rough, in_round(0, 5))
    assert np.abs(total - rough.sum(axis=0)).max() <= 5 * 2.0**-bits / 2 + 1e-15


def test_fixed_point_keeps_signs_and_refuses_what_does_not_fit() -> None:
    values = np.array([[-1.5, 0.0, 2.25], [1.0, -(2.0**-32), 5.0]])
    assert np.array_equal(as_numbers(as_words(values, 32), 32), values)
    for bad in (2.0**21, np.inf, np.nan):
        with pytest.raises(FixConfig, match=r"round 4: an update holds .*put a clip before"):
            as_words(np.array([[0.0, bad]]), 32, 4)


@pytest.mark.parametrize("lost", [[], [0], [7], [2, 5], [0, 1]])
def test_drop_outs_are_made_good(lost: list[int]) -> None:
    words = as_words(updates(8, 500), 32)
    keys = agree(8, 6, np.random.default_rng(5))
    there = np.array([k for k in range(8) if k not in lost])
    shares = keys.shares_held_by(there)
    assert set(shares["own"]).isdisjoint(shares["private"])
    total = unmasked(masked(words, keys)[there], there, keys.public, shares, 6)
    assert np.array_equal(total, words[there].sum(axis=0, dtype=np.uint64))
    # a server that misses one upload of those who answered holds nothing
    if len(there) > 2:
        part = unmasked(masked(words, keys)[there[1:]], there, keys.public, shares, 6)
        assert stats.kstest(part / 2.0**64, "uniform").pvalue > 1e-4


def test_seeds_open_with_enough_shares_only() -> None:
    rng = np.random.default_rng(0)
    secret = 123456789**7 % PRIME
    shares = split(secret, 7, 4, rng)
    for chosen in ([0, 1, 2, 3], [6, 4, 2, 0], [1, 3, 4, 5, 6]):
        assert joined([shares[k] for k in chosen], 4) == secret
    with pytest.raises(FixConfig, match="3 shares of a seed where 4 are needed"):
        joined(shares[:3], 4)
    assert joined(shares[:3], 3) != secret
    assert joined([shares[0], shares[0], shares[1], shares[2]][1:], 3) != secret


def test_below_the_threshold_is_a_clear_error() -> None:
    config = SecureSum(dropout_rate=0.9)
    with pytest.raises(
        FixConfig, match=r"round 3: \d+ of 10 clients dropped out; .* while 7 answer; .*are kept"
    ):
        config.total(updates(10, 5), in_round(3, 10))
    assert [SecureSum().least(n) for n in (2, 3, 6, 10)] == [2, 2, 4, 7]


def settings(**changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "data": {"source": "digits", "options": {"victim": 20, "participants": 10}},
        "model": {"name": "mlp", "hidden": [6]},
        "training": {"rounds": 5, "learning_rate": 0.2, "participation": 0.5},
        "audit": {"attributes": []},
        "property": {"kind": "membership", "positives": 2},
        "defence": [{"name": "secure_sum"}],
    }
    for section, values in changes.items():
        both = isinstance(values, dict) and isinstance(content.get(section), dict)
        content[section] = {**content[section], **values} if both else values
    return content


def record(path: Path, **changes: Any) -> Recording:
    return Recording.open(simulate(plan(parse_config(settings(**changes))), path))


def test_the_recording_holds_sums_and_participants_only(tmp_path: Path) -> None:
    secure = record(tmp_path / "secure")
    for entry in secure.rounds:
        assert set(entry.spans) == {("sent", ""), ("total", "")}
        assert len(entry.participants or ()) == 5
    plain = record(tmp_path / "plain", defence=[])
    target = client_property("membership")
    heard = observe(secure, SECURE_SERVER, target, "").know(Sums)
    summed = observe(plain, SECURE_SERVER, target, "").know(Sums)
    assert np.array_equal(heard.participation, summed.participation)
    for one, other in zip(heard, summed, strict=True):
        # the same federation but for the rounding of the two wires
        np.testing.assert_allclose(one.total, other.total, atol=2e-6)
        np.testing.assert_allclose(one.sent, other.sent, atol=2e-6)
    assert Link not in observe(secure, SECURE_SERVER, target, "").kinds
    raw = b"".join(f.read_bytes() for f in (secure.path / "wire").glob("*.safetensors"))
    for client in plain.clients:
        _, sent, returned, _ = plain.link(client)
        name = "layers.0.weight"
        for model, start in zip(returned.get(name, ()), sent.get(name, ()), strict=True):
            assert model[0].tobytes() not in raw
            assert (start.astype(float) - model)[0].tobytes() not in raw


def test_drop_outs_are_not_among_the_participants(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "defence": [{"name": "secure_sum", "dropout_rate": 0.2, "threshold": 0.55}],
        "training": {"rounds": 8, "participation": 1.0},
    }
    recording = record(tmp_path / "run", **changes)
    counts = [len(e.participants or ()) for e in recording.rounds]
    assert min(counts) >= 6
    assert min(counts) < 10
    again = record(tmp_path / "again", **changes)
    assert [e.participants for e in again.rounds] == [e.participants for e in recording.rounds]


def test_below_the_threshold_the_rounds_before_are_kept(tmp_path: Path) -> None:
    defence = [{"name": "secure_sum", "dropout_rate": 0.2, "threshold": 0.8}]
    with pytest.raises(FixConfig, match=r"round [1-9]\d*: .*the rounds before are kept"):
        record(tmp_path / "run", defence=defence, training={"rounds": 200, "participation": 1.0})
    recording = Recording.open(tmp_path / "run")
    assert not recording.closed
    assert len(recording.rounds) >= 1
    sums = observe(recording, SECURE_SERVER, client_property("membership"), "").know(Sums)
    assert len(sums) == len(recording.rounds)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training": {"participation": 0.1}}, "one client a round.*hides nothing"),
        ({"training": {"isolate": "victim"}}, "isolate sends one client a model of its own"),
        ({"defence": [{"name": "secure_sum", "dropout_rate": 1.0}]}, "dropout_rate"),
        ({"defence": [{"name": "secure_sum", "treshold": 0.6}]}, "did you mean 'threshold'"),
        ({"defence": [{"name": "secure_sum"}, {"name": "clip", "norm": 1.0}]}, "before it"),
    ],
)
def test_what_a_sum_cannot_do_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(FixConfig, match=words):
        record(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_unequal_clients_are_refused(tmp_path: Path, people: Path, settings_for: Any) -> None:
    content = settings_for(people, defence=[{"name": "secure_sum"}])
    with pytest.raises(FixConfig, match=r"hold 5 to 12 records; set training\.weighting = 'equal'"):
        simulate(plan(parse_config(content)), tmp_path / "run")
    content["training"]["weighting"] = "equal"
    content["training"]["participation"] = 0.7
    assert len(Recording.open(simulate(plan(parse_config(content)), tmp_path / "run")).rounds) == 3


def test_other_defences_come_before(tmp_path: Path) -> None:
    defence = [{"name": "clip", "norm": 1e-3}, {"name": "secure_sum"}]
    recording = record(tmp_path / "run", defence=defence)
    sums = observe(recording, SECURE_SERVER, client_property("membership"), "").know(Sums)
    for one in sums:
        assert np.linalg.norm(one.total) <= 5e-3 * (1 + 1e-6)


def opened(upload: np.ndarray, victim: int, own: int, private: int, public: Any) -> np.ndarray:
    """An upload without its masks, for who has both secrets of the client that sent it."""
    words = upload - mask(own, len(upload))
    for other, key in enumerate(public):
        if other != victim:
            shared = mask(pow(key, private, PRIME), len(upload))
            words = words - shared if victim < other else words + shared
    return as_numbers(words, 32)


@pytest.mark.parametrize("colluding", [5, 6])
def test_what_collusion_would_do(colluding: int) -> None:
    """As the documentation says: ``threshold`` clients open everybody's uploads, fewer open none;
    all but one take their own updates off the sum."""
    plain = updates(8, 50)
    keys = agree(8, 6, np.random.default_rng(2))
    uploads = masked(as_words(plain, 32), keys)
    victim, clan = 7, range(colluding)
    shares = [[held[victim][k] for k in clan] for held in (keys.own_shares, keys.private_shares)]
    if colluding < 6:
        with pytest.raises(FixConfig, match="5 shares of a seed where 6 are needed"):
            joined(shares[0], 6)
        assert joined(shares[0], 5) != keys.own[victim]
    else:
        own, private = (joined(held, 6) for held in shares)
        seen = opened(uploads[victim], victim, own, private, keys.public)
        np.testing.assert_allclose(seen, plain[victim], atol=STEP)
    total = as_numbers(as_words(plain, 32).sum(axis=0, dtype=np.uint64), 32)
    np.testing.assert_allclose(total - plain[:7].sum(axis=0), plain[7], atol=16 * STEP)


def test_who_has_the_seed_has_every_key() -> None:
    """A simulator's keys are as secret as the seed of the config."""
    assert agree(4, 3, stream(5, "masks", 0)) == agree(4, 3, stream(5, "masks", 0))
