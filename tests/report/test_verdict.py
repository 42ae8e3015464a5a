"""The verdict follows its stated rule, and says it in one sentence."""

from __future__ import annotations

import pytest

from overheard.evaluation.record import Audit, Failed, Finding, Replay, Skipped
from overheard.report import headline
from overheard.report.verdict import (
    EXPOSED,
    NO_SIGN,
    NOT_MEASURED,
    UNCLEAR,
    Level,
    judge,
    judge_pooled,
    overall,
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
    ("n", "value", "majority", "imputation", "level"),
    [
        (1000, 0.65, 0.5, 0.6, EXPOSED),
        (100, 0.65, 0.5, 0.6, UNCLEAR),
        (1000, 0.65, 0.63, 0.5, UNCLEAR),
        (1000, 0.65, 0.65, 0.5, NO_SIGN),
        (1000, 0.65, 0.5, None, EXPOSED),
        (1000, 0.65, None, 0.7, NO_SIGN),
        (1000, 0.65, None, None, UNCLEAR),
    ],
)
def test_the_rule_for_shares(
    audit: Audit,
    n: int,
    value: float,
    majority: float | None,
    imputation: float | None,
    level: Level,
) -> None:
    changes = {"n": n, "low": 0.6, "value": value, "high": 0.7, "lift": None}
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


# what must not be concluded


def flagged(finding: Finding, why: str = "poor fit: the residual is 40 times the noise") -> Finding:
    return finding.model_copy(update={"details": {"flag": why}})


@pytest.mark.parametrize("value", [0.40, 0.99], ids=["no sign", "exposed"])
def test_a_flagged_answer_is_not_measured_and_says_why_first(audit: Audit, value: float) -> None:
    finding = one(audit, "max_entropy", "site 5", "black").model_copy(
        update={"value": value, "low": value - 0.01, "high": value + 0.01}
    )
    (verdict,) = verdicts(with_findings(audit, flagged(finding)))
    assert verdict.level is NOT_MEASURED
    assert verdict.text.startswith(
        "`black` was not measured: at 1 of 1 client max_entropy flags its own answer: poor fit"
    )


def test_another_attack_that_finds_nothing_does_not_speak_for_a_flagged_one(audit: Audit) -> None:
    weak = one(audit, "model_based_linear", "site 1", "black")
    strong = flagged(one(audit, "max_entropy", "site 1", "black"))
    (verdict,) = verdicts(with_findings(audit, weak, strong))
    assert verdict.level is NOT_MEASURED
    # but what another attack did find stands
    found = weak.model_copy(update={"value": 0.99, "low": 0.98, "high": 1.0})
    (verdict,) = verdicts(with_findings(audit, found, strong))
    assert verdict.level is EXPOSED


def test_no_sign_is_said_of_all_clients_or_not_at_all(audit: Audit) -> None:
    weak = [one(audit, "model_based_linear", site, "black") for site in ("site 1", "site 2")]
    (verdict,) = verdicts(with_findings(audit, *weak))
    assert verdict.level is NO_SIGN
    (verdict,) = verdicts(with_findings(audit, weak[0], flagged(weak[1])))
    assert verdict.level is NOT_MEASURED
    assert "at 1 of 2 clients" in verdict.text
    assert "no sign at the others" in verdict.text


def test_an_answer_that_the_truth_contradicts_is_no_sign_of_nothing(audit: Audit) -> None:
    weak = one(audit, "model_based_linear", "site 1", "black")
    over = weak.model_copy(update={"details": {"oversure": "97% sure on average, right for 60%"}})
    (verdict,) = verdicts(with_findings(audit, over))
    assert verdict.level is NOT_MEASURED
    assert "97% sure" in verdict.text


def test_where_only_guesses_ran_nothing_was_measured(audit: Audit) -> None:
    """However good the guess: who does not listen is what attacks are compared with."""
    guess = one(audit, "majority", "site 1", "black").model_copy(
        update={"value": 1.0, "low": 0.99, "high": 1.0}
    )
    (verdict,) = verdicts(with_findings(audit, guess))
    assert verdict.level is NOT_MEASURED
    assert "nothing that listens was run" in verdict.text


def test_one_word_for_all_secrets_says_no_sign_only_if_all_were_measured(audit: Audit) -> None:
    weak = one(audit, "model_based_linear", "site 1", "black")
    other = flagged(one(audit, "max_entropy", "site 1", "female"))
    assert overall(verdicts(with_findings(audit, weak))) is NO_SIGN
    assert overall(verdicts(with_findings(audit, weak, other))) is NOT_MEASURED


def test_the_only_positive_among_300_is_found(audit: Audit) -> None:
    """Accuracy moves from 299 to 300 of 300; the probabilities moved by 9.7 bits."""
    finding = one(audit, "max_entropy", "site 1", "black").model_copy(
        update={
            "n": 300, "value": 1.0, "low": 0.987, "high": 1.0, "majority": 299 / 300,
            "imputation": 299 / 300, "lift": 1 / 300, "evidence": 9.66, "p_value": 2 * 2**-9.66,
            "details": {"rare_value": "1", "rare_records": 1, "rare_recall": 1.0,
                        "rare_precision": 1.0},
        }
    )  # fmt: skip
    (verdict,) = verdicts(with_findings(audit, finding))
    assert verdict.level is EXPOSED
    assert "of the 1 record with 1 it finds 100%, and of those it names 100% are" in verdict.text
    assert "beat both guesses by 9.7 bits" in verdict.text


def test_of_many_clients_the_luckiest_is_not_exposed(audit: Audit) -> None:
    """A p-value of 0.01 at one client of 20, and nothing elsewhere."""
    clients = [f"c{k}" for k in range(20)]
    template = one(audit, "max_entropy", "site 1", "black")
    made = [template.model_copy(update={"client": c, "p_value": 0.5}) for c in clients]
    lucky = made[0].model_copy(update={"p_value": 0.01})
    (verdict,) = verdicts(with_findings(audit, lucky, *made[1:]))
    assert verdict.level is UNCLEAR
    (verdict,) = verdicts(with_findings(audit, lucky))
    assert verdict.level is EXPOSED


def test_all_clients_together_may_be_exposed_where_none_alone_is(audit: Audit) -> None:
    template = one(audit, "max_entropy", "site 1", "black")
    made = [template.model_copy(update={"client": f"c{k}", "p_value": 0.03}) for k in range(6)]
    pooled = next(
        p for p in audit.pooled if (p.attack, p.attribute) == ("max_entropy", "black")
    ).model_copy(update={"p_value": 1e-6})
    both = with_findings(audit, *made).model_copy(update={"pooled": (pooled,)})
    (verdict,) = verdicts(both)
    assert verdict.level is EXPOSED
    assert "of all clients' " in verdict.text
    assert "exposed" not in {j.level.name for j in judge(both)}


def test_an_optimum_at_infinity_is_said(audit: Audit) -> None:
    rebuilt = one(audit, "exact_linear", "site 1", None)
    endless = rebuilt.model_copy(update={"details": {"optimum": "at infinity (why)"}})
    (sentence,) = headline(with_findings(audit, endless))
    assert sentence.endswith(
        "above the best possible; the best possible model lies at infinity (why)."
    )
    (sentence,) = headline(with_findings(audit, rebuilt))
    assert "infinity" not in sentence


def test_a_client_that_did_not_train_as_declared_shows_no_sign_of_nothing(audit: Audit) -> None:
    weak = one(audit, "model_based_linear", "site 1", "black")
    replay = Replay(client="site 1", outcome="does not fit", rounds=(1,), round=1, off=0.8)
    unfit = with_findings(audit, weak).model_copy(update={"replays": (replay,)})
    (verdict,) = verdicts(unfit)
    assert verdict.level is NOT_MEASURED
    assert "does not reproduce what the client sent" in verdict.text


@pytest.mark.parametrize(("value", "level"), [(0.86, NOT_MEASURED), (0.999, EXPOSED)])
def test_told_a_wrong_recipe_an_attack_may_show_a_leak_but_not_that_there_may_be_one(
    audit: Audit, value: float, level: Level
) -> None:
    """A little better than guessing by a wrong recipe is no measurement of what the right one gets;
    what the truth confirms beyond doubt is a leak, whatever was declared."""
    found = one(audit, "model_based_linear", "site 1", "black").model_copy(
        update={"value": value, "low": value - 0.02, "high": value, "majority": 0.85,
                "imputation": 0.85, "p_value": 0.3 if value < 0.9 else 1e-12}
    )  # fmt: skip
    replay = Replay(client="site 1", outcome="does not fit", rounds=(1,), round=1, off=0.8)
    (verdict,) = verdicts(with_findings(audit, found))
    assert verdict.level is (UNCLEAR if level is NOT_MEASURED else EXPOSED)
    unfit = with_findings(audit, found).model_copy(update={"replays": (replay,)})
    (verdict,) = verdicts(unfit)
    assert verdict.level is level


def test_each_reason_is_said_of_the_clients_that_it_is_of(audit: Audit) -> None:
    sites = [one(audit, "model_based_linear", f"site {k}", "black") for k in (1, 2, 3)]
    replay = Replay(client="site 3", outcome="does not fit", rounds=(1,), round=1, off=0.8)
    doubted = [flagged(sites[0], "off by 3.5"), flagged(sites[1], "off by 4"), sites[2]]
    made = with_findings(audit, *doubted).model_copy(update={"replays": (replay,)})
    (sentence,) = headline(made)
    assert "at 2 of 3 clients model_based_linear flags its own answer: off by 3.5; at" in sentence
    assert "; at 1 of 3 clients the declared recipe does not reproduce" in sentence


def test_what_only_probabilities_hint_at_is_said(audit: Audit) -> None:
    """Accuracy below a stranger's, and the verdict is not "no sign": the sentence says why."""
    weak = one(audit, "model_based_linear", "site 1", "black")
    hint = weak.model_copy(update={"evidence": 2.25, "p_value": 0.4})
    (verdict,) = verdicts(with_findings(audit, hint))
    assert verdict.level is UNCLEAR
    assert "beat both guesses by 2.2 bits over all records, which may be chance" in verdict.text


def test_all_clients_models_are_rebuilt_on_their_records(audit: Audit) -> None:
    rows = [f for f in audit.findings if f.attack == "exact_linear"]
    weak = tuple(f.model_copy(update={"p_value": 0.5}) for f in rows)
    pooled = tuple(
        p.model_copy(update={"p_value": 1e-9}) for p in audit.pooled if p.attack == "exact_linear"
    )
    (sentence,) = headline(
        audit.model_copy(update={"findings": weak, "pooled": pooled, "skipped": ()})
    )
    assert "rebuilds all clients' own model: the copy's loss on their " in sentence


def test_a_failure_elsewhere_is_not_said_of_this_secret(audit: Audit) -> None:
    skip = Skipped(attack="exact_linear", client="site 1", reason="a network")
    broken = Failed(attack="max_entropy", client="site 1", attribute="black", error="ValueError")
    both = audit.model_copy(
        update={"findings": (), "pooled": (), "skipped": (skip,), "failed": (broken,)}
    )
    said = {v.topic.name: v.text for v in verdicts(both)}
    assert "every attack on it was skipped, for" in said["own model"]
    assert "every attack on it was skipped or failed" in said["black"]


def test_what_counts_as_right_of_a_number_is_said(audit: Audit) -> None:
    found = one(audit, "max_entropy", "site 6", "black")
    right = "the right one of 3 ranges: up to 2; 2 to 5; above 5"
    cut = found.model_copy(update={"details": {"right_is": right}})
    (sentence,) = headline(with_findings(audit, cut))
    assert "'s 1,049 records (the right one of 3 ranges); always" in sentence


def test_a_leak_by_an_attack_surer_than_right_says_so(audit: Audit) -> None:
    found = one(audit, "max_entropy", "site 6", "black")
    over = found.model_copy(update={"details": {"oversure": "99% sure on average, right for 97%"}})
    (verdict,) = verdicts(with_findings(audit, over))
    assert verdict.level is EXPOSED
    assert "must not be relied on: 99% sure on average, right for 97%" in verdict.text


def test_where_an_attack_failed_the_others_do_not_say_no_sign(audit: Audit) -> None:
    weak = one(audit, "model_based_linear", "site 1", "black")
    broken = Failed(attack="max_entropy", client="site 1", attribute="black", error="ValueError")
    failed = with_findings(audit, weak).model_copy(update={"failed": (broken,)})
    (verdict,) = verdicts(failed)
    assert verdict.level is NOT_MEASURED
    assert "max_entropy failed (ValueError)" in verdict.text
