"""The verdict follows its stated rule, and says it in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from report_words import section

from overheard.cli import audit as command
from overheard.evaluation.decision import (
    EXPOSED,
    NO_SIGN,
    NOT_MEASURED,
    UNCLEAR,
    Level,
    share_p_value,
)
from overheard.evaluation.record import Audit, Failed, Finding, Replay, Skipped
from overheard.report import headline
from overheard.report.digest import digest
from overheard.report.html import render, render_markdown
from overheard.report.verdict import replay_words, verdict
from overheard.report.words import secret

FLAG = {"details": {"flag": "poor fit"}}
CLEAR = {"value": 0.99, "low": 0.98, "high": 1.0, "p_value": 1e-9}
UNFIT = Replay(client="site 1", outcome="does not fit", rounds=(1,), round=1, off=0.8)
WHY = "ValueError"
BROKEN = Failed(attack="max_entropy", client="site 1", attribute="black", reason=WHY, error=WHY)


def with_findings(audit: Audit, *findings: Finding, **more: Any) -> Audit:
    return audit.model_copy(update={"findings": findings, "pooled": (), "skipped": (), **more})


def said(audit: Audit) -> str:
    """The sentence about its only secret."""
    (secret,) = audit.secrets
    return verdict(audit, secret)


def one(
    audit: Audit, attack: str, client: str, attribute: str | None = "black", **changes: Any
) -> Finding:
    asked = (attack, client, attribute)
    found = next(f for f in audit.findings if (f.attack, f.client, f.attribute) == asked)
    return found.model_copy(update=changes)


def weak(audit: Audit, client: str = "site 1", **changes: Any) -> Finding:
    """An attack that listens and finds nothing."""
    return one(audit, "model_based_linear", client, **changes)


def pooled_row(audit: Audit, attack: str, attribute: str | None, **changes: Any) -> Finding:
    row = next(p for p in audit.pooled if (p.attack, p.attribute) == (attack, attribute))
    return row.model_copy(update=changes)


def test_the_headline_of_the_demo(audit: Audit) -> None:
    sentences = headline(audit)
    assert len(sentences) == 5
    assert (
        "An eavesdropper learns `black` for 76% (73–79) of site 6's 1,049 records; the majority "
        "baseline gets 51%, the imputation baseline 58%."
    ) in sentences
    assert (
        "An eavesdropper rebuilds site 1's own model: the copy's loss on the client's 939 records "
        "is less than 0.0001% above the best possible; the model last returned is 1.2% above, the "
        "global model is 3.1% above."
    ) in sentences
    (close,) = [s for s in sentences if "`physlm`" in s]  # close numbers get another digit
    assert close.startswith("Nothing suggests that an eavesdropper learns `physlm`")
    assert "85.3% (82.3–88.3)" in close
    assert "gets 85.0%" in close


@pytest.mark.parametrize(
    ("n", "majority", "imputation", "level"),
    [
        (1000, 0.5, 0.6, EXPOSED),
        (100, 0.5, 0.6, NO_SIGN),  # better by what chance explains
        (1000, 0.63, 0.5, UNCLEAR),
        (1000, 0.65, 0.5, NO_SIGN),
        (1000, 0.5, None, EXPOSED),
        (1000, None, 0.7, NO_SIGN),
        (1000, None, None, NOT_MEASURED),  # against what?
    ],
)
def test_the_rule_for_shares(
    audit: Audit, n: int, majority: float | None, imputation: float | None, level: Level
) -> None:
    changes = {"n": n, "low": 0.6, "value": 0.65, "high": 0.7, "lift": None}
    guess = max((g for g in (majority, imputation) if g is not None), default=None)
    changes |= {"majority": majority, "imputation": imputation}
    changes |= {"p_value": share_p_value(round(0.65 * n), n, guess, None)}
    found = with_findings(audit, one(audit, "max_entropy", "site 1", "female", **changes))
    assert found.level == level
    assert ("majority" in said(found)) == (majority is not None)
    assert ("imputation" in said(found)) == (imputation is not None)
    assert said(found).startswith("Nothing suggests") == (level == NO_SIGN)


@pytest.mark.parametrize(
    ("value", "p_value", "free", "level"),
    [
        (1e-6, 1e-9, 0.1, EXPOSED),
        (1e-6, 1e-9, None, EXPOSED),
        (1e-3, 0.17, 0.1, UNCLEAR),
        (1e-3, 0.6, 5e-4, NO_SIGN),
    ],
)
def test_the_rule_for_the_own_model(
    audit: Audit, value: float, p_value: float, free: float | None, level: Level
) -> None:
    ends = {"value": value, "low": value / 3, "high": 3 * value}
    rebuilt = one(audit, "exact_linear", "site 1", None, **ends, p_value=p_value)
    guess = one(audit, "global_model", "site 1", None, value=free)
    found = with_findings(audit, rebuilt, *([] if free is None else [guess]))
    assert found.level == level
    assert "site 1's own model" in said(found)


def test_a_guess_without_listening_is_never_the_verdict(audit: Audit) -> None:
    """However high its accuracy, majority is what attacks are compared with."""
    guess = one(audit, "majority", "site 1", **CLEAR)
    found = with_findings(audit, guess, weak(audit))
    assert found.secrets[0].attack == weak(audit).attack
    assert found.level == NO_SIGN
    found = with_findings(audit, guess)
    assert found.level == NOT_MEASURED
    assert "only baselines" in said(found)


def test_what_was_only_skipped_or_failed_is_not_measured(audit: Audit) -> None:
    skips = [
        Skipped(attack="max_entropy", client="site 1", attribute="income", reason="constant"),
        Skipped(attack="exact_linear", client="site 1", reason="a network"),
    ]
    made = with_findings(audit, skipped=tuple(skips), failed=(BROKEN,))
    assert {s.level for s in made.secrets} == {NOT_MEASURED}
    found = {secret(s.topic): verdict(made, s) for s in made.secrets}
    assert found["income"].startswith("`income` was not measured")
    assert "was skipped, for" in found["own model"]  # what failed elsewhere is not said of this
    assert "skipped or failed" in found["black"]
    assert headline(with_findings(audit)) == ["Nothing was measured: no attack was run."]


# what must not be concluded


@pytest.mark.parametrize(
    ("changes", "more", "why"),
    [
        (FLAG, {}, "at 1 of 1 client model_based_linear flags its own answer: poor fit"),
        (FLAG | CLEAR, {}, "flags its own answer: poor fit"),
        ({"details": {"overconfident": "97% sure on average, right for 60%"}}, {}, "97% sure"),
        ({}, {"replays": (UNFIT,)}, "does not reproduce what the client sent"),
        ({}, {"failed": (BROKEN,)}, "max_entropy failed (ValueError)"),
    ],
)
def test_what_is_in_doubt_is_no_sign_of_nothing(
    audit: Audit, changes: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    assert with_findings(audit, weak(audit)).level == NO_SIGN
    found = with_findings(audit, weak(audit, **changes), **more)
    assert found.level == NOT_MEASURED
    assert said(found).startswith("`black` was not measured: ")
    assert why in said(found)


def test_another_attack_that_finds_nothing_does_not_speak_for_a_flagged_one(audit: Audit) -> None:
    strong = one(audit, "max_entropy", "site 1", **FLAG)
    assert with_findings(audit, weak(audit), strong).level == NOT_MEASURED
    # what is found stands
    assert with_findings(audit, weak(audit, **CLEAR), strong).level == EXPOSED


def test_no_sign_is_said_of_all_clients_and_secrets_or_not_at_all(audit: Audit) -> None:
    found = with_findings(audit, weak(audit), weak(audit, "site 2"))
    assert found.level == NO_SIGN == with_findings(audit, weak(audit)).level
    found = with_findings(audit, weak(audit), weak(audit, "site 2", **FLAG))
    assert found.level == NOT_MEASURED
    assert "at 1 of 2 clients" in said(found)
    assert "no sign at the others" in said(found)
    other = one(audit, "max_entropy", "site 1", "female", **FLAG)
    assert with_findings(audit, weak(audit), other).level == NOT_MEASURED


def test_each_reason_is_said_of_the_clients_that_it_is_of(audit: Audit) -> None:
    flags = {2: {"details": {"flag": "off by 3.5"}}, 3: {"details": {"flag": "off by 4"}}}
    sites = [weak(audit, f"site {k}", **flags.get(k, {})) for k in (1, 2, 3)]
    sentence = said(with_findings(audit, *sites, replays=(UNFIT,)))
    assert "at 2 of 3 clients model_based_linear flags its own answer: off by 3.5; " in sentence
    assert "at 1 of 3 clients the declared recipe does not" in sentence


@pytest.mark.parametrize(("value", "level"), [(0.86, UNCLEAR), (0.999, EXPOSED)])
def test_told_a_wrong_recipe_nothing_is_measured_of_that_client(
    audit: Audit, value: float, level: Level
) -> None:
    """However much an attack got right: what the right recipe gets is not known. A client that
    trained as declared is exposed whatever another one did."""
    changes = {"value": value, "low": value - 0.02, "high": value, "majority": 0.85}
    changes |= {"imputation": 0.85, "p_value": 0.1 if value < 0.9 else 1e-12}
    found = weak(audit, **changes)
    assert with_findings(audit, found).level == level
    assert with_findings(audit, found, replays=(UNFIT,)).level == NOT_MEASURED
    other = found.model_copy(update={"client": "site 2", "p_value": 1e-12})
    made = with_findings(audit, found, other, replays=(UNFIT,))
    assert [made.level, *(f.level for f in made.findings)] == [EXPOSED, NOT_MEASURED, EXPOSED]


def test_the_only_positive_among_300_is_found(audit: Audit) -> None:
    """Accuracy moves from 299 to 300 of 300; the probabilities moved by 9.7 bits."""
    rare = {"rare_value": "1", "rare_records": 1, "rare_recall": 1.0, "rare_precision": 1.0}
    changes = {"n": 300, "value": 1.0, "low": 0.987, "high": 1.0, "majority": 299 / 300}
    changes |= {"imputation": 299 / 300, "lift": 1 / 300}
    changes |= {"evidence": 9.66, "p_value": 2 * 2**-9.66}
    found = with_findings(audit, one(audit, "max_entropy", "site 1", **changes, details=rare))
    assert found.level == EXPOSED
    assert "of the 1 record with 1 it finds 100%, and of those it names 100% are" in said(found)
    assert "by 9.7 bits" in said(found)


def test_of_many_clients_the_luckiest_is_not_exposed(audit: Audit) -> None:
    """A p-value of 0.01 at one client of 20, and nothing elsewhere."""
    lucky = one(audit, "max_entropy", "site 1", p_value=0.01)
    others = [lucky.model_copy(update={"client": f"c{k}", "p_value": 0.5}) for k in range(19)]
    assert with_findings(audit, lucky, *others).level == NO_SIGN
    five = lucky.model_copy(update={"p_value": 0.005})
    assert with_findings(audit, five, *others).level == UNCLEAR  # 20 looks at 15% in all
    assert with_findings(audit, lucky).level == EXPOSED


def test_all_clients_together_may_be_exposed_where_none_alone_is(audit: Audit) -> None:
    first = one(audit, "max_entropy", "site 1", p_value=0.03)
    made = [first.model_copy(update={"client": f"c{k}"}) for k in range(6)]
    row = pooled_row(audit, "max_entropy", "black", p_value=1e-6)
    both = with_findings(audit, *made, pooled=(row,))
    assert both.level == EXPOSED
    assert "of all clients' " in said(both)
    assert EXPOSED not in {f.level for f in both.findings}
    sites = [one(audit, "exact_linear", f"site {k}", None, p_value=0.5) for k in range(1, 7)]
    row = pooled_row(audit, "exact_linear", None, p_value=1e-9)
    assert "all clients' own model" in said(with_findings(audit, *sites, pooled=(row,)))


@pytest.mark.parametrize(
    ("place", "changes", "replays", "why"),
    [(0, FLAG, (), "max_entropy flags its own"), (1, {}, (UNFIT,), "the declared recipe does not")],
)
def test_no_sign_over_all_clients_needs_all_clients(
    audit: Audit, place: int, changes: dict[str, Any], replays: tuple[Replay, ...], why: str
) -> None:
    """Programs read this level from the digest, beside the secret's verdict."""
    sites = ["site 2", "site 1", "site 3", "site 4", "site 5", "site 6"]
    made = [one(audit, "max_entropy", site, "physlm") for site in sites]
    made[place] = made[place].model_copy(update=changes)
    row = pooled_row(audit, "max_entropy", "physlm")
    (found,) = with_findings(audit, *made, pooled=(row,), replays=replays).pooled
    assert found.level == NOT_MEASURED
    assert found.why.startswith(f"at {sites[place]} {why}")


# --- whether the clients trained as declared stands beside the verdict, wherever that is


FITS = Replay(client="a", outcome="fits", rounds=(0, 3), round=3, off=1e-7, by_chance=0.0)
NEAR = Replay(client="b", outcome="fits", rounds=(0, 3, 5), round=0, off=0.05, by_chance=0.06)
STRANGE = Replay(client="c", outcome="does not fit", rounds=(0,), round=0, off=0.5, by_chance=0.02)
HIDDEN = Replay(client="d", outcome="cannot be checked", reason="single updates are hidden")


@pytest.mark.parametrize(
    ("replays", "words"),
    [
        ((FITS, FITS), ["2 of 2 clients", "(relative error 1e-07; 4 messages"]),
        ((NEAR,), ["as closely as random"]),
        ((FITS, NEAR), ["or as closely as random"]),
        ((FITS, STRANGE, HIDDEN), [
            "failed for 1 of 3 clients", "is no measurement",
            "c (off by 50% of its update in round 0, where replays differ by up to 2.0%",
            "1 could not be checked (single updates are hidden)."]),
        ((HIDDEN, HIDDEN), ["cannot be done (single"]),
        ((), ["not done"]),
    ],
)  # fmt: skip
def test_every_outcome_in_words(
    audit: Audit, replays: tuple[Replay, ...], words: list[str]
) -> None:
    said = replay_words(audit.model_copy(update={"replays": replays}))
    assert [part for part in words if part not in said] == []


def test_it_stands_in_the_section_of_the_verdict(audit: Audit) -> None:
    hostile = STRANGE.model_copy(update={"client": "<b>c</b>"})
    checked = audit.model_copy(update={"replays": (FITS, hostile)})
    page = render(checked)
    assert "Replay check failed for 1 of 2 clients" in section(page, "verdict")
    assert "<dt>&lt;b&gt;c&lt;/b&gt;</dt><dd>does not fit: off by 50%" in section(page, "verdict")
    verdict = render_markdown(checked).split("## Verdict by secret")[1].split("\n## ")[0]
    assert "Replay check failed for 1 of 2 clients" in verdict
    told = digest(checked)["replayed"]
    assert told["sentence"] == replay_words(checked)
    assert told["clients"] == {"a": "fits", "<b>c</b>": "does not fit"}


def test_the_terminal_says_it_and_warns(audit: Audit, capsys: pytest.CaptureFixture[str]) -> None:
    for replay in (FITS, STRANGE):
        command.summary(audit.model_copy(update={"replays": (replay,)}))
    said = capsys.readouterr()
    assert "passed for 1 of 1 client" in " ".join(said.out.split())
    assert "failed for 1 of 1 client" in said.err
