"""From a description to findings in twenty lines; the README shows the same."""

import tempfile

from overheard import Recording, audit, parse_config, plan, simulate, threat_named, write_report

config = parse_config(
    {
        "data": {"source": "randhie"},
        "model": {"name": "mlp", "hidden": [16]},
        "training": {"rounds": 1, "learning_rate": 0.05},
        "audit": {"attributes": ["female"]},
    }
)
with tempfile.TemporaryDirectory() as folder:
    recording = Recording.open(simulate(plan(config), f"{folder}/run"))
    threat = threat_named("eavesdropper")
    record = audit(recording, threat, attacks=["max_entropy"], clients=["site 3"])
    for finding in record.findings:
        print(finding.client, finding.value, finding.low, finding.high, finding.majority)
    print(write_report(record, f"{folder}/report.html").stat().st_size, "bytes of report")
