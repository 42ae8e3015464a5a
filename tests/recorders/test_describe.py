from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import recipe_in, recorded
from generated import write_csv
from torch import nn

import overheard
from overheard.errors import FixConfig, FixData, FixRecording
from overheard.evaluation.record import Replay
from overheard.evaluation.replay import SCATTER, replays
from overheard.federation.federation import read_config
from overheard.programs import trusted
from overheard.recorders.describe import describe
from overheard.recorders.template import write_template
from overheard.transcript.ledger import LedgerWriter
from overheard.transcript.store import Recording
from overheard.transcript.verify import verify
from overheard.transcript.view import in_the_clear

COLUMNS = ("x0", "x1", "s")
SCALES = {"x0": (0.5, 2.0), "x1": (-1.0, 0.5)}
RATE = 0.2


def people(rng: np.random.Generator, sites: int = 3, each: int = 12) -> dict[str, np.ndarray]:
    rows = sites * each
    s = (rng.random(rows) < 0.5).astype(float)
    x0, x1 = rng.normal(size=rows) + s, rng.normal(size=rows)
    return {
        "site": np.array([f"site {i % sites}" for i in range(rows)]),
        "x0": x0,
        "x1": x1,
        "s": s,
        "y": x0 - x1 + 2 * s + rng.normal(0, 0.3, rows),
    }


def inputs(table: dict[str, np.ndarray], mine: np.ndarray) -> np.ndarray:
    columns = [(table[c] - SCALES.get(c, (0, 1))[0]) / SCALES.get(c, (0, 1))[1] for c in COLUMNS]
    return np.column_stack(columns)[mine]


@pytest.fixture
def federation(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A federation that knows nothing of overheard, trained with torch and recorded by hand.

    ``run``: its messages; ``people.csv``: its records; node ids in place of names.
    """
    table = people(rng)
    write_csv(tmp_path / "people.csv", table)
    torch.manual_seed(0)
    network = make_network().double()
    with overheard.Recorder(tmp_path / "run") as recorder:
        for number in range(6):
            model = {n: p.detach().clone() for n, p in network.named_parameters()}
            recorder.sent(number, "", {n: p.numpy() for n, p in model.items()})
            returned = []
            for client in range(3):
                network.load_state_dict(model)
                mine = table["site"] == f"site {client}"
                loss = torch.nn.functional.mse_loss(
                    network(torch.tensor(inputs(table, mine)))[:, 0], torch.tensor(table["y"][mine])
                )
                network.zero_grad()
                loss.backward()
                after = {n: p.detach() - RATE * p.grad for n, p in network.named_parameters()}
                name = str(2**64 - 1 - client)
                recorder.returned(number, name, {n: p.numpy() for n, p in after.items()}, 12)
                recorder.clear("num-examples", name, 12)
                returned.append(after)
            mean = {n: torch.stack([r[n] for r in returned]).mean(0) for n in model}
            network.load_state_dict(mean)
    return tmp_path


def replayed(recording: Recording) -> tuple[Replay, ...]:
    return replays(recording, recipe_in(recording), recording.truth(), recording.clients)


def described(
    folder: Path, text: str, trust: bool = False, run: str = "run", out: str = "described"
) -> Recording:
    """The recording with what this text says of it."""
    (folder / "audit.toml").write_text(text)
    description = read_config(folder / "audit.toml", recorded=True)
    describe(Recording.open(folder / run), description, folder / out, trust)
    return Recording.open(folder / run, folder / out)


def make_network() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


TOML = """
[data]
source = "file"
path = "people.csv"
client = "site"
target = "y"
[clients]
"18446744073709551615" = "site 0"
"18446744073709551614" = "site 1"
"18446744073709551613" = "site 2"
[model]
name = "mlp"
hidden = [4]
activation = "tanh"
[training]
learning_rate = 0.2
[[encoding]]
column = "x0"
shift = 0.5
scale = 2.0
[[encoding]]
column = "x1"
shift = -1.0
scale = 0.5
[[encoding]]
column = "s"
[target]
scale = 1.0
[audit]
attributes = ["s"]
"""


def test_a_description_that_is_right_replays_the_clients(federation: Path) -> None:
    recording = described(federation, TOML)
    assert in_the_clear(recording).notes == ()
    assert verify(federation / "run").sound
    assert set(recording.clients) == {"site 0", "site 1", "site 2"}
    recipe = recipe_in(recording)
    assert recipe.precision == "float64"
    layout = [name for name, _ in recipe.model.layout()]
    assert layout == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert {replay.outcome for replay in replayed(recording)} == {"fits"}
    notes = in_the_clear(recording).sentences()
    assert any("'num-examples' of 3 client(s) (site 0: 12" in note for note in notes)
    for number, name in enumerate(["site 0", "site 1", "site 2"]):
        before = Recording.open(federation / "run").releases(str(2**64 - 1 - number))
        after = recording.releases(name)
        np.testing.assert_equal([m for _, *m in before], [m for _, *m in after])


def test_no_message_is_copied_and_the_recording_is_not_touched(federation: Path) -> None:
    def there() -> dict[str, tuple[int, bytes]]:
        files = (p for p in (federation / "run").rglob("*") if p.is_file())
        return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}

    before = there()
    described(federation, TOML)
    assert there() == before
    assert {path.name for path in (federation / "described").iterdir()} == {"side", "truth"}
    assert not list((federation / "described").rglob("*round*"))


def test_a_description_belongs_to_its_messages(federation: Path) -> None:
    described(federation, TOML)
    run, out = federation / "run", federation / "described"
    with overheard.Recorder(federation / "other") as recorder:
        for entry, sent, _ in Recording.open(run).aggregates():
            recorder.sent(entry.number, "", sent)
            recorder.returned(entry.number, "a", sent)
    for place in (federation / "other", run):
        with pytest.raises(FixRecording, match="is not about the messages in"):
            Recording.open(place, out if place != run else run)
    index = run / "messages" / "index.jsonl"
    index.write_bytes(b"\n".join(index.read_bytes().splitlines()[:-2]) + b"\n")
    with pytest.raises(FixRecording, match="or these have grown since; describe them again"):
        Recording.open(run, out)


@pytest.mark.parametrize(
    "names",
    [
        {"18446744073709551615": "site 1", "18446744073709551614": "site 1"},
        {"18446744073709551615": "../../etc"},
        {"18446744073709551615": 5},
        ["site 1"],
    ],
)
def test_a_hostile_description_is_refused(federation: Path, names: Any) -> None:
    recording = Recording.open(federation / "run")
    writer = LedgerWriter(federation / "described" / "side")
    writer.append({"kind": "header", "messages": recording.digest, "names": names, "about": {}})
    writer.close()
    with pytest.raises(FixRecording, match=r"one name|is not allowed|its header: names"):
        recording.described_in(federation / "described")


@pytest.mark.parametrize(
    ("old", "new", "fit"),
    [
        ("learning_rate = 0.2", "learning_rate = 0.1", 0),
        ("scale = 0.5", "scale = 0.6", 0),
        (
            '"site 0"\n"18446744073709551614" = "site 1"',
            '"site 1"\n"18446744073709551614" = "site 0"',
            1,
        ),
    ],
)
def test_a_wrong_description_is_noticed(federation: Path, old: str, new: str, fit: int) -> None:
    """Of swapped clients only the third fits."""
    assert old in TOML
    outcomes = [r.outcome for r in replayed(described(federation, TOML.replace(old, new)))]
    assert (outcomes.count("does not fit"), outcomes.count("fits")) == (3 - fit, fit)


@pytest.mark.parametrize("dropped", [True, False])
def test_a_last_batch_that_was_left_out(tmp_path: Path, dropped: bool) -> None:
    """Twelve records in batches of eight: one step, or two of which one is of four records."""
    how = {"rounds": 4, "participation": 1.0, "batch_size": 8, "drop_last": dropped}
    recording = recorded(tmp_path / "made", clients=3, people=12, **how)
    for said in (True, False):
        recipe = recipe_in(recording).model_copy(update={"drop_last": said})
        assert recipe.local_steps(12) == (1 if said else 2)
        found = replays(recording, recipe, recording.truth(), recording.clients)
        fits = "fits" if said == dropped else "does not fit"
        assert {replay.outcome for replay in found} == {fits}


def test_a_defence_that_was_announced_is_known_to_the_audit(federation: Path) -> None:
    noisy = TOML + '[[defence]]\nname = "gaussian"\nsd = 0.25\n'
    recording = described(federation, noisy.replace("scale = 0.5", "scale = 0.51"))
    found = replayed(recording)  # none was added: messages are nearer than such noise leaves them
    assert {(r.outcome, r.reason) for r in found} == {("does not fit", SCATTER)}
    assert min(replay.by_chance or 0.0 for replay in found) > 0
    told = recording.side("AppliedDefence")
    assert told["names"] == ["gaussian"]
    assert told["noise_sd"] == 0.25
    (federation / "audit.toml").write_text(noisy.replace("gaussian", "gausian"))
    with pytest.raises(FixConfig, match="did you mean 'gaussian'"):
        read_config(federation / "audit.toml", recorded=True)


def test_a_client_without_records_is_said_and_not_scored(federation: Path) -> None:
    rows = (federation / "people.csv").read_text().splitlines()
    kept = [row for row in rows if not row.startswith("site 1,")]
    (federation / "people.csv").write_text("\n".join(kept) + "\n")
    text = TOML.replace('"18446744073709551614" = "site 1"\n', "")
    recording = described(federation, text)
    assert "No records were given of 1 of 3 clients" in in_the_clear(recording).notes[0]
    threat, attacks = overheard.threat_named("server"), ["majority", "max_entropy"]
    audit = overheard.audit(recording, threat, attacks, targets=["s"])
    assert {f.client for f in audit.findings} == {"site 0", "site 2"}
    who = "18446744073709551614"
    why = f"truth/ has no records of client {who!r}, so nothing is scored"
    assert {(s.client, s.reason) for s in audit.skipped} == {(who, why)}


def test_strangers_of_a_table_are_asked_about(federation: Path, rng: np.random.Generator) -> None:
    there = (federation / "people.csv").read_text().splitlines()
    twins = [line.replace("site 0", "nobody") for line in there[1:3]]  # of site 0 and site 1
    write_csv(federation / "others.csv", people(rng, sites=1, each=20))
    others = (federation / "others.csv").read_text()
    (federation / "others.csv").write_text("\n".join([others.rstrip(), *twins]) + "\n")
    text = TOML.replace('attributes = ["s"]', 'attributes = []\nnon_members = "others.csv"')
    recording = described(federation, text)
    wanted = ["candidate_decode", "coin"]
    audit = overheard.audit(recording, overheard.threat_named("server"), wanted)
    found = {f.attack: f for f in audit.findings if f.client == "site 1"}
    assert {f.n for f in found.values()} == {12 + 20}  # twins of members are nobody's strangers
    assert found["candidate_decode"].value > max(0.9, found["coin"].value)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"site 2"\n', '"site 7"\n', "'site 7' is not in column 'site' of the table; it has site"),
        ('"18446744073709551613"', '"5"', "'5' is not in the recording; it has 184467"),
        ("hidden = [4]", "hidden = [5]", "layers.0.weight 5x3.*messages hold 0.weight 4x3"),
        ('[[encoding]]\ncolumn = "s"\n', "", "layers.0.weight 4x2"),
        ('column = "s"', 'column = "z"', "no column 'z'"),
        ('name = "mlp"\n', "", "either a name .* or a factory"),
        ('path = "people.csv"', 'path = "nowhere.csv"', "no such file"),
        ('attributes = ["s"]', 'attributes = ["t"]', "no column 't'"),
        ('attributes = ["s"]', 'attributes = [["s", "x0"]]', "'x0' is a number that is cut into"),
        ('attributes = ["s"]', 'non_members = "held out"', "held_out does not say who"),
        ('attributes = ["s"]', 'non_members = "people.csv"', "each of the 36 agrees with somebody"),
        ('"site 1"\n', '"site 0"\n', "two clients of the recording have one name"),
    ],
)
def test_mistakes_in_a_description(federation: Path, old: str, new: str, complaint: str) -> None:
    assert old in TOML
    with pytest.raises((FixConfig, FixData), match=complaint):
        described(federation, TOML.replace(old, new))


def test_a_recording_that_was_stopped_stays_unfinished(federation: Path) -> None:
    index = federation / "run" / "messages" / "index.jsonl"
    index.write_bytes(b"\n".join(index.read_bytes().splitlines()[:-1]) + b"\n")
    recording = described(federation, TOML)
    assert len(recording.rounds) == 6
    assert not recording.closed


class Own(nn.Module):
    def __init__(self, width: int = 4, function: Any = torch.tanh) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, width), nn.Linear(width, 1)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.second(self.function(self.first(x)))


def with_factory(monkeypatch: pytest.MonkeyPatch, made: Any) -> str:
    """The description with a factory that makes this."""
    monkeypatch.setattr(trusted, "imported", lambda name: made)
    old = 'name = "mlp"\nhidden = [4]\nactivation = "tanh"\n'
    assert old in TOML
    return TOML.replace(old, 'factory = "here:make"\n')


@pytest.mark.parametrize("made", [make_network, Own])
def test_a_model_by_factory(federation: Path, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = described(federation, with_factory(monkeypatch, made), True)
    assert {replay.outcome for replay in replayed(recording)} == {"fits"}
    recipe = recipe_in(recording)
    assert (recipe.model.hidden, recipe.model.activation) == ((4,), "tanh")


def test_any_other_module_as_it_is(federation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_factory(monkeypatch, lambda: Own(function=torch.sin))
    more = '[training]\noptimiser = { name = "sgd", momentum = 0.5 }\n'
    recording = described(federation, text.replace("[training]\n", more), True)
    recipe = recipe_in(recording)
    assert recipe.model.architecture == "module"
    assert recipe.optimiser.momentum == 0.5
    # neither that module nor momentum is what trained here, and the replay says so
    assert {replay.outcome for replay in replayed(recording)} == {"does not fit"}


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda: Own(5), "first.weight 5x3.*this is not the model that was trained"),
        (lambda width: Own(width), "called without arguments, failed: TypeError"),
        (lambda: 5, "makes a int, not a torch module"),
        (lambda: 1 / 0, "failed: ZeroDivisionError: division"),
        (lambda: nn.Sequential(Own(), nn.ConstantPad1d((0, 1), 0.0)), "gives 2 numbers a record"),
    ],
)
def test_a_wrong_factory(federation: Path, made: Any, complaint: str, monkeypatch: Any) -> None:
    with pytest.raises(FixConfig, match=complaint):
        described(federation, with_factory(monkeypatch, made), True)


def test_the_template_shows_what_was_recorded(federation: Path) -> None:
    file = write_template(federation / "run")
    assert file == federation / "run" / "audit.toml"
    text = file.read_text()
    for word in ("6 rounds, 3 clients", "0.weight  4x3", "hidden = [4]", "18446744073709551615"):
        assert word in text
    description = read_config(file, recorded=True)
    assert description.model.hidden == (4,)
    assert verify(federation / "run").sound


def test_sums_are_described_as_they_are(federation: Path) -> None:
    """Under secure aggregation the sum is replayed, and the totals and names go over."""
    source = Recording.open(federation / "run")
    with overheard.Recorder(federation / "sums") as recorder:
        for entry, sent, total in source.aggregates():
            recorder.sent(entry.number, "", sent)
            mean = {n: sent[n] - total[n] / 3 for n in sent}
            recorder.aggregated(entry.number, mean, source.clients)
    recording = described(federation, TOML, run="sums")
    assert {replay.outcome for replay in replayed(recording)} == {"fits"}
    assert verify(federation / "sums").sound
    both = zip(recording.aggregates(), source.aggregates(), strict=True)
    for (entry, _, total), (_, _, true) in both:
        assert set(entry.participants) == {"site 0", "site 1", "site 2"}
        for name in total:
            np.testing.assert_allclose(total[name], true[name], atol=1e-12)
