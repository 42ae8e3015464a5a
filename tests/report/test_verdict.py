"""The verdict follows its stated rule, and says it in one sentence."""

from __future__ import annotations

import pytest

from overheard.evaluation.record import Audit, Finding, Skipped
from overheard.report import headline
from overheard.report.verdict import (
    EXPOSED,
    NO_SIGN,
    NOT_MEASURED,
    UNCLEAR,
    Level,
    judge,
    judge_pooled,
    verdicts,
)


def with_findings(audit: Audit, *findings: Finding) -> Audit:
    return audit.model_copy(update={"findings": findings, "pooled": (), "skipped": ()})


def one(audit: Audit, attack: str, client: str, attribute: str | None) -> Finding:
    return next(
        f
        for f in audit.findings
        if (f.attack, f.client, f.attribute) == (attack, client, attribute)
    )


def test_the_headline_of_the_demo(audit: Audit) -> None:
    sentences = headline(audit)
    assert len(sentences) == 5
    assert (
        "An eavesdropper learns `black` for 76% (73–79) of site 6's 1,049 records; always guessing "
        "the commonest value gets 51%, a stranger without listening 58%."
    ) in sentences
    assert sentences[-1].startswith("`label counts` was not measured")
    assert (
        "An eavesdropper rebuilds site 1's own model: the copy's loss on the client's 939 records "
        "is less than 0.0001% above the best possible; the model last returned is 1.2% above, the "
        "global model is 3.1% above."
    ) in sentences


def test_close_numbers_get_another_digit(audit: Audit) -> None:
    (sentence,) = [s for s in headline(audit) if "`physlm`" in s]
    assert sentence.startswith("An eavesdropper may learn `physlm`")
    assert "85.3% (82.3–88.3)" in sentence
    assert "gets 85.0%" in sentence


def test_every_level_has_its_sentence(audit: Audit) -> None:
    weak = one(audit, "max_entropy", "site 5", "physlm")
    (sentence,) = headline(with_findings(audit, weak))
    assert sentence.startswith("Nothing suggests that an eavesdropper learns `physlm`")


@pytest.mark.parametrize(
    ("low", "value", "majority", "imputation", "level"),
    [
        (0.61, 0.65, 0.5, 0.6, EXPOSED),
        (0.60, 0.65, 0.5, 0.6, UNCLEAR),
        (0.61, 0.65, 0.63, 0.5, UNCLEAR),
        (0.61, 0.65, 0.65, 0.5, NO_SIGN),
        (0.61, 0.65, 0.5, None, EXPOSED),
        (0.61, 0.65, None, 0.7, NO_SIGN),
        (0.61, 0.65, None, None, UNCLEAR),
    ],
)
def test_the_rule_for_shares(
    audit: Audit,
    low: float,
    value: float,
    majority: float | None,
    imputation: float | None,
    level: Level,
) -> None:
    changes = {"low": low, "value": value, "high": 0.7, "lift": None}
    changes |= {"majority": majority, "imputation": imputation}
    finding = one(audit, "max_entropy", "site 1", "female").model_copy(update=changes)
    (judged,) = judge(with_findings(audit, finding))
    assert judged.level is level
    (sentence,) = headline(with_findings(audit, finding))
    assert ("commonest" in sentence) == (majority is not None)
    assert ("stranger" in sentence) == (imputation is not None)


@pytest.mark.parametrize(
    ("value", "high", "free", "level"),
    [
        (1e-6, 1e-5, 0.1, EXPOSED),
        (1e-6, 1e-5, None, EXPOSED),
        (1e-3, 0.02, 0.1, UNCLEAR),
        (1e-3, 5e-3, 4e-3, UNCLEAR),
        (1e-3, 5e-3, 5e-4, NO_SIGN),
    ],
)
def test_the_rule_for_the_own_model(
    audit: Audit, value: float, high: float, free: float | None, level: Level
) -> None:
    finding = one(audit, "exact_linear", "site 1", None)
    finding = finding.model_copy(update={"value": value, "low": value / 2, "high": high})
    others = []
    if free is not None:
        others = [one(audit, "global_model", "site 1", None).model_copy(update={"value": free})]
    judged = judge(with_findings(audit, finding, *others))
    assert judged[0].level is level
    (sentence,) = headline(with_findings(audit, finding, *others))
    assert "site 1's own model" in sentence


def test_a_guess_without_listening_is_never_the_verdict(audit: Audit) -> None:
    """However high its accuracy, majority is what attacks are compared with."""
    weak = one(audit, "model_based_linear", "site 1", "black")
    guess = one(audit, "majority", "site 1", "black")
    (verdict,) = verdicts(with_findings(audit, guess, weak))
    assert verdict.worst is not None
    assert verdict.worst.finding == weak
    assert verdict.level is NO_SIGN


def test_pooled_findings_are_judged_by_the_same_rule(audit: Audit) -> None:
    levels = {(j.finding.attack, j.finding.attribute): j.level for j in judge_pooled(audit)}
    assert levels["max_entropy", "female"] is EXPOSED
    assert levels["max_entropy", "physlm"] is NO_SIGN
    assert levels["exact_linear", None] is EXPOSED


def test_what_was_only_skipped_is_not_measured(audit: Audit) -> None:
    skip = Skipped(attack="max_entropy", client="site 1", attribute="income", reason="constant")
    (verdict,) = verdicts(
        audit.model_copy(update={"findings": (), "pooled": (), "skipped": (skip,)})
    )
    assert verdict.level is NOT_MEASURED
    assert verdict.text.startswith("`income` was not measured")


def test_nothing_at_all(audit: Audit) -> None:
    empty = audit.model_copy(update={"findings": (), "pooled": (), "skipped": ()})
    assert headline(empty) == ["Nothing was measured: no attack was run."]


def test_names_with_braces_are_only_names(audit: Audit) -> None:
    finding = one(audit, "max_entropy", "site 6", "black").model_copy(
        update={"attribute": "{actor.__class__}", "client": "{0}"}
    )
    (sentence,) = headline(with_findings(audit, finding))
    assert "`{actor.__class__}`" in sentence
    assert "{0}'s" in sentence
