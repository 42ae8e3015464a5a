"""Audits made by hand: a small one like the demo's, and as large as one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from scipy.stats import norm

from overheard.evaluation.decision import share_p_value
from overheard.evaluation.record import AttackInfo, Audit, Calibration, Finding, Run, Skipped

LINK, RECORDS = "individual messages", ("public records", "labels")
INFOS = tuple(
    AttackInfo(name=name, question=question, paper=paper, needs=needs, words=f"How {name} works.")
    for name, question, paper, needs in (
        ("max_entropy", "attribute", "overheard", (LINK, *RECORDS)),
        ("model_based_linear", "attribute", "driouich2022", (LINK, *RECORDS)),
        ("majority", "attribute", "baseline", ("attribute prior",)),
        ("exact_linear", "local_model", "xu2021", (LINK, "what clients do")),
        ("last_returned", "local_model", "xu2021", (LINK,)),
        ("global_model", "local_model", "xu2021", ("the global model",)),
    )
)
# per client: attribute -> (majority, imputation, max_entropy, model_based_linear)
SHARES = {
    "site 1": {"female": (0.52, 0.60, 0.66, 0.58), "black": (0.92, 0.92, 0.93, 0.80),
               "physlm": (0.88, 0.88, 0.879, 0.70)},
    "site 2": {"female": (0.51, 0.61, 0.70, 0.59), "black": (0.98, 0.975, 0.9997, 0.90),
               "physlm": (0.87, 0.87, 0.86, 0.69)},
    "site 3": {"female": (0.53, 0.59, 0.68, 0.60), "black": (0.99, 0.98, 0.99, 0.85),
               "physlm": (0.90, 0.90, 0.89, 0.71)},
    "site 4": {"female": (0.52, 0.60, 0.64, 0.57), "black": (0.97, 0.97, 0.972, 0.84),
               "physlm": (0.91, 0.91, 0.90, 0.73)},
    "site 5": {"female": (0.54, 0.62, 0.65, 0.60), "black": (0.53, 0.60, 0.77, 0.62),
               "physlm": (0.86, 0.86, 0.84, 0.66)},
    "site 6": {"female": (0.52, 0.60, 0.67, 0.61), "black": (0.51, 0.58, 0.76, 0.62),
               "physlm": (0.85, 0.85, 0.853, 0.68)},
}  # fmt: skip
SIZES = {"site 1": 939, "site 2": 1131, "site 3": 801, "site 4": 888, "site 5": 1023}
SIZES["site 6"] = 1049


def run_of(clients: Iterable[str]) -> Run:
    model = {"architecture": "dense", "inputs": 17, "hidden": [], "bias": True}
    return Run(
        recording="demo/run",
        data="randhie",
        origin="RAND Health Insurance Experiment, bundled in statsmodels; public domain",
        clients=tuple(clients),
        rounds=40,
        closed=True,
        threat="eavesdropper",
        threat_words="listens to one client's link: every model sent and returned.",
        knows=(LINK, "what clients do", *RECORDS),
        recipe={"algorithm": "fedavg", "model": model, "loss": "squared_error",
                "learning_rate": 0.05, "batch_size": None, "precision": "float32"},
        seed=7,
        software={"overheard": "0.1.0", "numpy": "2.3.1", "python": "3.11.2"},
    )  # fmt: skip


def loss_p_value(value: float, high: float, bar: float = 0.01) -> float:
    """That a loss is not below a bar, by its interval."""
    return float(norm.sf(1.96 * (bar - value) / (high - value)))


def share_finding(attack: str, client: str, attribute: str, value: float, n: int, majority: float,
                  imputation: float) -> Finding:  # fmt: skip
    info = next(i for i in INFOS if i.name == attack)
    return Finding(
        attack=attack, paper=info.paper, question="attribute", threat="eavesdropper",
        client=client, attribute=attribute, metric="accuracy", value=value,
        low=max(0.0, value - 0.03), high=min(1.0, value + 0.03), majority=majority,
        imputation=imputation, lift=value - max(majority, imputation),
        n=n, seconds=0.123,
        p_value=share_p_value(round(value * n), n, max(majority, imputation), None),
        seed=7, details={"log_loss": 0.4821} if attack == "max_entropy" else {},
    )  # fmt: skip


def loss_finding(attack: str, client: str, value: float, n: int) -> Finding:
    return Finding(
        attack=attack, paper="xu2021", question="local_model", threat="eavesdropper",
        client=client, metric="excess_loss", value=value, low=value / 3, high=value * 3, n=n,
        p_value=loss_p_value(value, 3 * value),
        seconds=0.0123, seed=7, details={"identified_directions": 17, "condition_number": 3.2e5},
    )  # fmt: skip


def pooled_of(findings: list[Finding]) -> list[Finding]:
    groups: dict[tuple[str, str | None], list[Finding]] = {}
    for f in findings:
        groups.setdefault((f.attack, f.attribute), []).append(f)
    fields = ("value", "low", "high", "majority", "imputation", "lift")
    rows = [
        Finding(
            client=None,
            attack=attack,
            question=group[0].question,
            attribute=attribute,
            metric=group[0].metric,
            clients=len(group),
            n=sum(f.n for f in group),
            **{k: None if getattr(group[0], k) is None
               else sum(getattr(f, k) for f in group) / len(group) for k in fields},
        )
        for (attack, attribute), group in groups.items()
    ]  # fmt: skip
    return [row.model_copy(update={"p_value": pooled_p_value(row)}) for row in rows]


def pooled_p_value(row: Finding) -> float:
    if row.majority is None or row.imputation is None:
        return loss_p_value(row.value, row.high)
    guess = max(row.majority, row.imputation)
    return share_p_value(round(row.value * row.n), row.n, guess, None)


def demo_like() -> Audit:
    findings = []
    for i, (client, shares) in enumerate(SHARES.items()):
        n = SIZES[client]
        for attribute, (majority, imputation, entropy, linear) in shares.items():
            for attack, value in (
                ("max_entropy", entropy), ("model_based_linear", linear), ("majority", majority)
            ):  # fmt: skip
                findings.append(
                    share_finding(attack, client, attribute, value, n, majority, imputation)
                )
        findings += [
            loss_finding("exact_linear", client, 3.1e-7 * 4**i, n),
            loss_finding("last_returned", client, 0.012 * (i + 1), n),
            loss_finding("global_model", client, 0.031 * (i + 1), n),
        ]
    skipped = tuple(
        Skipped(attack="label_counts", client=c, reason="needs a classifier; this is a regression")
        for c in SHARES
    )
    return Audit(
        run=run_of(SHARES),
        attacks=INFOS,
        findings=tuple(findings),
        pooled=tuple(pooled_of(findings)),
        skipped=skipped,
        notes=("One row per person: the first of each.",),
    )


def sure(k: int) -> Calibration:
    return Calibration(bits=0.2, certain=k % 300, certain_right=k % 300, known=k % 300)


def many_clients(clients: int, attributes: int = 3, attacks: int = 6) -> Audit:
    """As many as asked for; every attack is a copy of the first under another name."""
    names = [f"attack_{a}" for a in range(attacks)]
    infos = tuple(INFOS[0].model_copy(update={"name": name}) for name in names)
    findings = [
        share_finding("max_entropy", f"hospital {c:03d}", f"secret_{s}",
                      0.5 + 0.4 * ((7 * c + 3 * a + s) % 50) / 50, 1000 + c, 0.55, 0.6
                      ).model_copy(update={"attack": name, "calibration": sure(7 * c + s)})
        for c in range(clients) for s in range(attributes) for a, name in enumerate(names)
    ]  # fmt: skip
    return Audit(
        run=run_of(f"hospital {c:03d}" for c in range(clients)),
        attacks=infos,
        findings=tuple(findings),
        pooled=tuple(pooled_of(findings)),
        skipped=(),
    )


@pytest.fixture(scope="session")
def audit() -> Audit:
    """Six clients, three attributes and the client's own model."""
    return demo_like()


@pytest.fixture(scope="session")
def large() -> Callable[..., Audit]:
    return many_clients
