"""Sections 2 to 6 of the page: lift, sureness, rounds, what would help, what to cite."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from report_words import section, words_of

from overheard.evaluation.record import AttackInfo, Audit, Bin, Calibration, Finding
from overheard.report import render
from overheard.report.advice import Mean, Point, frontiers, ranked
from overheard.report.digest import digest
from overheard.report.html import render_markdown, render_settings, title
from overheard.report.model import curves
from overheard.report.svg import by_rounds

pytestmark = pytest.mark.slow

BINS = (
    Bin(least=0.5, most=0.6, n=3000, confidence=0.55, right=0.54, low=0.52, high=0.56),
    Bin(least=0.99, most=1.0, n=2831, confidence=0.999, right=0.998, low=0.995, high=0.9995),
)


def told_by(attack: str, rows: Iterable[Any], **changes: Any) -> tuple[Any, ...]:
    """The rows, those of this attack changed."""
    return tuple(r.model_copy(update=changes) if r.attack == attack else r for r in rows)


@pytest.fixture(scope="module")
def told(audit: Audit) -> Audit:
    """The demo-like audit, with how sure it is and how long it listened."""
    sure = Calibration(bits=0.125, certain=2831, certain_right=2825, bins=BINS)
    rows = Calibration(bits=0.5, certain=400, certain_right=399)
    observed = [
        Finding(attack="max_entropy", question="attribute", client="site 6", attribute="black",
                metric="accuracy", rounds=k, value=v, low=v - 0.03, high=v + 0.03, n=1049,
                majority=0.51, imputation=0.58)
        for k, v in ((1, 0.61), (2, 0.70), (20, 0.76))
    ]  # fmt: skip
    return audit.model_copy(
        update={
            "pooled": told_by("max_entropy", audit.pooled, calibration=sure),
            "findings": told_by("max_entropy", audit.findings, calibration=rows),
            "curves": tuple(observed),
        }
    )


def words_in(page: str, name: str) -> str:
    return words_of(section(page, name))


def test_how_sure(told: Audit) -> None:
    """Records of clients whose probabilities the truth contradicts are not among those counted."""
    more = told.model_copy(
        update={"pooled": tuple(p.model_copy(update={"n": p.n + 1000}) for p in told.pooled)}
    )
    assert "2,831 of 5,831 records" in render_markdown(more)
    text = words_in(render(more), "sure")
    for part in ("2,831 of 5,831 records", "2,825", "0.12", "50–60%", "beyond 99%", "99.8%"):
        assert part in text
    assert text.count("Known beyond 99%") == 2 * 3  # over all and by client, for three secrets


def test_a_guess_is_not_how_sure_the_adversary_is(told: Audit) -> None:
    """Where everything that listened is flagged, the guess it was compared with is no adversary."""
    sure = next(p.calibration for p in told.pooled if p.attack == "max_entropy")
    flagged = tuple(p.model_copy(update={"details": {"flag": "poor fit"}}) for p in told.pooled)
    pooled = told_by("majority", flagged, calibration=sure, details={})
    only = told.model_copy(update={"pooled": pooled})
    assert "Known beyond 99%" not in words_in(render(only), "sure")
    assert "How sure is the adversary" not in render_markdown(only)


def test_a_chart_says_what_is_flagged(audit: Audit) -> None:
    pooled = told_by("max_entropy", audit.pooled, details={"flag": "poor fit"})
    page = render(audit.model_copy(update={"pooled": pooled}))
    marked = re.findall(r"All clients together, (\w+): [^;<]*, flagged", page)
    assert set(marked) == {"max_entropy"}


def test_clients_left_out_are_counted_wherever_a_number_is_of_the_others(told: Audit) -> None:
    """4 of 6 clients must not read like all of them."""
    fewer = {"clients": 4, "flagged": 2}
    (rung,) = (p for p in told.pooled if (p.attack, p.attribute) == ("max_entropy", "black"))
    some = told.model_copy(
        update={
            "pooled": told_by("max_entropy", told.pooled, **fewer),
            "ladder": tuple(
                rung.model_copy(update={"rung": "colleague", **one})
                for one in (fewer, {"client": "site 6", "clients": 1})
            ),
        }
    )
    page = render(some)
    marked = re.findall(r"Clients together, max_entropy: [^;<]*, 4 of 6 clients", page)
    assert len(marked) == 3
    assert not re.findall("All clients together, max_entropy", page)
    known = "knows every record, all but the attribute, 4 of 6 clients"
    assert known in words_of(page)
    assert known in render_markdown(some)
    told_to_programs = [s["all_clients"] for s in digest(some)["secrets"] if s["all_clients"]]
    assert {(a["clients"], a["flagged"]) for a in told_to_programs if "ent" in a["attack"]} == {
        (4, 2)
    }


def test_numbers_that_cannot_be_are_not_printed(audit: Audit) -> None:
    """No model is better than the best possible, and of one that diverged digits say nothing."""
    best, *_ = (f for f in audit.findings if f.measure.limit is not None)
    below = best.model_copy(update={"value": -3.1e-4, "low": -3.1e-4, "high": 0.02})
    wild = best.model_copy(update={"value": 1e9, "low": 1e8, "high": 1e10})
    for found in (below, wild):
        said = render(audit.model_copy(update={"findings": (found,), "pooled": ()}))
        assert not re.search(r"[-−][0-9]", words_in(said, "exposed"))
        assert "×10⁹" not in words_in(said, "exposed")


def test_accuracy_by_rounds(told: Audit) -> None:
    (line,) = curves(told)
    assert [h.rounds for h in line] == [1, 2, 20]
    page = render(told)
    assert "How many rounds one must observe" in words_of(page)
    assert "76.0% (73.0–79.0)" in words_in(page, "how")
    assert "the majority baseline, 51.0%" in words_in(page, "how")
    heights = [float(y) for y in re.findall(r'<svg x="[^"]+" y="([0-9.]+)"><path[^>]*class="mark"',
                                            str(by_rounds(line, "x")))]  # fmt: skip
    assert heights == sorted(heights, reverse=True)  # learning more is drawn higher
    assert len(heights) == 3


def test_what_would_help_without_a_sweep(audit: Audit) -> None:
    text = words_in(render(audit), "helps")
    assert "No defence was measured" in text
    assert all(advice.command in text for advice in ranked(audit))
    assert ranked(audit)[0].name == "Encrypt the links"
    secure = audit.model_copy(
        update={"run": audit.run.model_copy(update={"threat": "secure-server"})}
    )
    names = [a.name for a in ranked(secure)]
    assert "Secure aggregation" not in names
    assert "Encrypt the links" not in names
    program = {"settings": {"name": "statistics"}, "encoding": {}, "target": {}}
    tables = audit.model_copy(update={"run": audit.run.model_copy(update={"recipe": program})})
    assert all("local work" not in a.name for a in ranked(tables))
    assert "Fewer and coarser numbers" in [a.name for a in ranked(tables)]


def test_what_would_help_with_a_sweep(audit: Audit) -> None:
    """Page one recommends the setting that the sweep chose, with all of its figures."""
    points = [
        Point(name, at, (), "max_entropy", "black", leaks, people, None, worth, "r2", 3, 0,
              epsilon, 0.0, best=best, chosen=chosen)
        for name, at, leaks, people, worth, epsilon, best, chosen in (
            ("noise", 0.1, Mean(0.01, -0.02, 0.04), 0.0, Mean(0.31, 0.3, 0.32), 4.5, True, True),
            ("none", 0.0, Mean(0.25, 0.24, 0.26), 90.0, Mean(0.4, 0.39, 0.41), None, True, False),
            ("<b>clip</b>", 0.0, Mean(0.26), 90.0, Mean(0.3), None, False, False),
        )
    ]  # fmt: skip
    ((_, ordered, _),) = frontiers(points[::-1])
    assert [p.name for p in ordered] == ["noise 0.1", "none", "<b>clip</b>"]
    page = render(audit, measured=points)
    text = words_in(page, "helps")
    assert "<b>clip</b>" in text
    assert "<b>clip</b>" not in page
    for part in ("+25.0 (+24.0 to +26.0)", "4.5", "0.3 (one seed)", "noise 0.1 (recommended)"):
        assert part in text
    said = "a lift of +1.0 points (undefended +25.0), r2 0.31 (undefended 0.4, majority baseline 0)"
    for told in (words_in(page, "first"), words_of(render_settings(points, "s"))):
        assert f"{said}; epsilon: 4.5 for a record's values" in told
    none = [replace(p, chosen=False) for p in points]
    assert "No setting measured is better" in words_in(render(audit, measured=none), "first")


def test_papers_are_cited(audit: Audit) -> None:
    assert all(title(short) in words_of(render(audit)) for short in ("xu2021", "driouich2022"))
    assert title("xu2021") == (
        "Xu and Neglia (2021), “What else is leaked when eavesdropping Federated Learning?”"
    )
    assert title("driouich2022").startswith("Driouich et al. (2022)")
    assert title("somebody2030") == "somebody2030"


# --- a property of clients is asked of all of them together, and shown so


NEEDS = {"matched_filter": ("sums of messages",), "nobody": ("the global model",)}


@pytest.fixture(scope="module")
def poisoned(audit: Audit) -> Audit:
    """Two of six clients poison; one attack finds both, one guesses nobody."""
    found = [
        Finding(
            attack=name, paper=paper, question="property", threat="secure-server",
            client="all clients", attribute="poisoning", metric="f1", value=value, low=value / 2,
            high=min(1.0, value + 0.2), majority=0.45, lift=value - 0.45, n=6, seconds=1.0, seed=0,
            p_value=0.01 if hits else 1.0,
            details={"found": hits, "positives": 2, "false_alarms": alarms},
        )
        for name, paper, value, hits, alarms in (
            ("matched_filter", "overheard", 0.95, 2, 0), ("nobody", "baseline", 0.0, 0, 0),
        )
    ]  # fmt: skip
    pooled = [f.model_copy(update={"client": None, "clients": 6}) for f in found]
    infos = [
        AttackInfo(
            name=f.attack, question="property", paper=f.paper, needs=NEEDS[f.attack], words=""
        )
        for f in found
    ]
    run = audit.run.model_copy(update={"threat": "secure-server"})
    return audit.model_copy(
        update={"run": run, "attacks": tuple(infos), "findings": tuple(found),
                "pooled": tuple(pooled), "skipped": ()}
    )  # fmt: skip


def test_the_page_counts_clients_and_not_records(poisoned: Audit) -> None:
    text = words_of(render(poisoned))
    shown = ("0.95 (0.47–1.00)", "2 of 2", "all 6 together", "nobody or everybody")
    assert [part for part in (*shown, "overheard detect") if part not in text] == []
    assert [part for part in ("Client by client", "Clients by lift") if part in text] == []
    assert "guessed right" not in text.split("How it was measured")[0].lower()
    assert "F1 0.95 (0.47–1.00)" in render_markdown(poisoned)
    (secret,) = digest(poisoned)["secrets"]
    assert secret["metric"] == "f1"
    assert secret["level"] == "exposed"
