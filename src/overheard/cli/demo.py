"""``overheard demo``: two federations of real people, recorded, audited and reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from overheard import terminal
from overheard.cli.audit import Options, run_audit, summary
from overheard.cli.options import Out, Seed
from overheard.cli.simulate import record, with_seed

if TYPE_CHECKING:
    from overheard.evaluation.record import Audit

DEMO = {
    "linear": [
        "exact_linear",
        "last_returned",
        "global_model",
        "majority",
        "model_based_linear",
        "max_entropy",
    ],
    "network": ["majority", "model_based_global", "model_based_last_returned", "max_entropy"],
}
"""The demo's federations and the attacks it runs on each: those that take seconds."""


def demo(out: Out = Path("overheard-demo"), seed: Seed = None) -> None:
    """Record and audit two federations of real people, and write the report.

    Six sites of the RAND Health Insurance Experiment train a linear regression together, then a
    small network; an eavesdropper of each site's link asks who is female, black or physically
    limited.
    """
    import tomllib
    from importlib import resources

    from overheard.federation.federation import parse_config
    from overheard.files import refuse_existing, write_durably
    from overheard.report.html import write_report
    from overheard.transcript.store import Recording

    refuse_existing(out)
    audits: list[Audit] = []
    for name, chosen in DEMO.items():
        file = f"demo-{name}.toml"
        text = (resources.files("overheard") / file).read_text(encoding="utf-8")
        config = with_seed(parse_config(tomllib.loads(text), file), seed)
        run, audit = out / name / "run", out / name / "audit.json"
        record(config, run)
        asked = Options(run, audit, attack=chosen, seed=config.seed)
        found = run_audit(Recording.open(run), asked)
        write_durably(audit, [found.to_json().encode()])
        write_report(found, out / name / "report.html")
        audits.append(found)
        summary(found, title=f"{name}: what the eavesdropper learns, all clients together")
    write_report(audits[-1], out / "report.html", beside=audits[:-1])
    terminal.say(f"recordings {out}/*/run", f"audits     {out}/*/audit.json")
    terminal.wrote("report", out / "report.html")
    written = [str(out / name / "audit.json") for name in DEMO]
    terminal.emit({"audits": written, "report": str(out / "report.html")})
