"""A shared recording is attacked: for the other secrets, for the seed, for rows nobody granted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import federations
import numpy as np
import pytest

from overheard.attacks import attack_named
from overheard.data.dataset import Dataset
from overheard.errors import FixConfig, FixData, FixRecording, ListenLonger
from overheard.foreign.tables import unpack_columns
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.knowledge import (
    BatchOrder,
    CandidatePool,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.share import share
from overheard.transcript.store import Recording, SideHeader, SideWriter
from overheard.transcript.target import Target
from overheard.transcript.threat import EAVESDROPPER, ISOLATING_SERVER, SECURE_SERVER, THREATS
from overheard.transcript.verify import verify
from overheard.transcript.view import launch, observe

SECRET_SEED = 731_590_226_118_402_957_363
SD = 50.0
KNOWN = 0.5  # the share of the records that the adversary knows
CLIENTS = 3
KEY_AND_WORD = ("x0", "x1", "word")


def people(each: int = 40) -> Dataset:
    """Three sites; two secrets, of which one is text."""
    dataset = federations.generated_people(clients=CLIENTS, people=each, columns=2, seed=3)
    rng = np.random.default_rng(8)
    word = np.where(rng.random(len(dataset.records)) < 0.3, "ill", "well")
    columns = {**dataset.records.columns, "word": word}
    return replace(dataset, records=Records(columns), sensitive=("s", "word"))


def simulated(path: Path, dataset: Dataset | None = None, **changes: Any) -> Recording:
    content: dict[str, Any] = {
        "seed": SECRET_SEED,
        "data": {"source": "file"},
        "model": {"name": "linear"},
        "training": {"rounds": 4, "learning_rate": 0.1},
        "audit": {"coverage": KNOWN, "membership": 10},
        "defence": [{"name": "gaussian", "sd": SD}],
        **changes,
    }
    return federations.simulated(path, content, dataset or people())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return simulated(tmp_path_factory.mktemp("share") / "run")


@pytest.fixture(scope="module")
def whole(run: Recording) -> dict[str, Records]:
    return run.truth()


# ---- the thief, who has a folder and knows this code


def tables(folder: Path) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Every table under the folder by its file's name, whatever any index says."""
    for file in sorted(folder.rglob("*.safetensors")):
        if file.parent.name != "messages":
            columns = unpack_columns(file.read_bytes(), file)
            yield file.name, {name: values.tolist() for name, values in columns.items()}


def rows_of(content: Mapping[str, Any], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return list(zip(*(content[c] for c in columns), strict=True))


def stolen(folder: Path, whole: dict[str, Records], secret: str) -> int:
    """How many of the clients' records have this secret in a table of the folder.

    A record is known by its two public numbers. A column gives the secret away if, over the
    records that are there, it is a relabelling of it, whatever it is called.
    """
    found: set[tuple[float, float]] = set()
    known = {
        (float(a), float(b)): str(v)
        for t in whole.values()
        for a, b, v in zip(t["x0"], t["x1"], t[secret], strict=True)
    }
    for _, content in tables(folder):
        if not {"x0", "x1"} <= set(content):
            continue
        people = rows_of(content, ("x0", "x1"))
        mine = [k for k, person in enumerate(people) if person in known]
        for values in content.values():
            pairs = {(str(values[k]), known[people[k]]) for k in mine}
            distinct = {told for told, _ in pairs}
            if len(pairs) == len(distinct) == len({v for _, v in pairs}) > 1:
                found |= {people[k] for k in mine}
    return len(found)


def noise_taken_off(recording: Recording, seed: int) -> float:
    """How well the noise that a seed draws explains the first round's updates."""
    asked = (EAVESDROPPER, Target("local_model"))
    links = [observe(recording, *asked, c).know(Messages) for c in recording.clients]
    updates = np.array([link.updates()[0] for link in links])
    drawn = stream(seed, "defence", 0).normal(0.0, SD, updates.shape)
    return float(np.corrcoef(drawn.ravel(), updates.ravel())[0, 1])


# ---- what it finds


def test_deleting_truth_is_not_enough(
    run: Recording, whole: dict[str, Records], tmp_path: Path
) -> None:
    """The thief is a real one: it steals from what the old advice called shareable."""
    rest = tmp_path / "rest"
    shutil.copytree(run.path, rest, ignore=shutil.ignore_patterns("truth"))
    everybody = sum(map(len, whole.values()))
    assert stolen(rest, whole, "word") == everybody  # from the pools, and half from the records
    assert stolen(rest, whole, "s") == everybody


@pytest.mark.parametrize("target", ["attribute.s", "attribute.word", "membership.s", "local_model"])
@pytest.mark.parametrize("threat", ["eavesdropper", "secure-server"])
def test_no_secret_is_in_it(
    run: Recording, whole: dict[str, Records], tmp_path: Path, target: str, threat: str
) -> None:
    out = share(run, target, THREATS[threat], tmp_path / "shared")
    for secret in ("s", "word"):
        assert stolen(tmp_path / "shared", whole, secret) == 0
    found = verify(tmp_path / "shared")
    assert found.sound, found
    assert found.rounds == 4
    assert {p.name for p in (tmp_path / "shared").iterdir()} <= {"messages", "side"}
    assert set(out.kinds) <= {k.__name__ for k in THREATS[threat].grants}
    assert Recording.open(tmp_path / "shared").clients == run.clients


def told_by_order(folder: Path, whole: dict[str, Records]) -> float:
    """The share of the records whose word a thief gets right who takes each client's rows for
    sorted by it, and knows how many have which."""
    words = {row[:2]: row[2] for t in whole.values() for row in rows_of(t.columns, KEY_AND_WORD)}
    content = next(c for name, c in tables(folder) if name.endswith("-publicrecords.safetensors"))
    right: list[bool] = []
    for client in whole:
        rows = rows_of(content, ("__client__", *KEY_AND_WORD[:2]))
        mine = [words[row[1:]] for row in rows if row[0] == client]
        right += [word == guess for word, guess in zip(mine, sorted(mine), strict=True)]
    return sum(right) / len(right)


def test_the_order_of_the_rows_says_nothing(tmp_path: Path) -> None:
    """The owner's table is sorted by a secret that is left out, as by a hospital's wards."""
    dataset = people(200)
    order = np.argsort(dataset.records["word"], kind="stable")
    dataset = replace(dataset, records=dataset.records.take(order))
    run = simulated(tmp_path / "run", dataset, audit={"attributes": ["s", "word"]})
    share(run, "attribute.s", EAVESDROPPER, tmp_path / "shared")
    whole = run.truth()
    assert told_by_order(run.path, whole) == 1
    assert told_by_order(tmp_path / "shared", whole) < 0.7  # 58% by the words' shares alone
    shared = Recording.open(tmp_path / "shared")
    for client, records in whole.items():
        view = observe(shared, EAVESDROPPER, Target.parse("attribute.s"), client)
        theirs = {**view.know(PublicRecords).records.columns, "y": view.know(Labels).values}
        columns = ("x0", "x1", "y")  # rows and labels went the same way
        assert set(rows_of(theirs, columns)) == set(rows_of(records.columns, columns))


def test_a_pool_is_in_another_order_too(run: Recording, tmp_path: Path) -> None:
    share(run, "membership.s", EAVESDROPPER, tmp_path / "shared")
    asked, rows = Target.parse("membership.s"), []
    for recording in (run, Recording.open(tmp_path / "shared")):
        pool = observe(recording, EAVESDROPPER, asked, "0").know(CandidatePool)
        rows.append(rows_of({**pool.records.columns, "y": pool.labels}, ("x0", "x1", "y")))
    assert rows[0] != rows[1]
    assert set(rows[0]) == set(rows[1])


def test_what_speaks_of_the_rows_by_their_place_is_left_out(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run")
    knowing = EAVESDROPPER.granting(BatchOrder)
    header = SideHeader(messages=run.digest, names={}, about=run.about)
    with SideWriter(tmp_path / "more", header) as writer:
        for name, content, key in run.described("attribute.s"):
            writer.side(name, content, key)
        writer.side("BatchOrder", {c: {"seeds": [0]} for c in run.clients}, "attribute.s")
    run = run.described_in(tmp_path / "more")
    assert BatchOrder in observe(run, knowing, Target.parse("attribute.s"), "0").kinds
    out = share(run, "attribute.s", knowing, tmp_path / "shared")
    assert "BatchOrder" not in out.kinds
    assert any("batch order" in remark for remark in out.remarks)


def test_no_seed_is_in_it(run: Recording, tmp_path: Path) -> None:
    share(run, "attribute.s", EAVESDROPPER, tmp_path / "shared")
    shared = Recording.open(tmp_path / "shared")
    assert noise_taken_off(shared, SECRET_SEED) > 0.99  # who has the seed has the updates
    assert max(abs(noise_taken_off(shared, guess)) for guess in range(10)) < 0.9
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert not any(b"seed" in p.read_bytes() for p in files)
    assert (shared.seed, run.seed) == (None, SECRET_SEED)
    owned = [p for p in run.path.rglob("*") if p.is_file()]
    held = {p.parent.name for p in owned if str(SECRET_SEED).encode() in p.read_bytes()}
    assert held == {"truth"}
    assert set(shared.about) == {"clients", "data", "origin"}


@pytest.mark.parametrize("seed", [0, SECRET_SEED])
def test_a_seed_that_can_be_guessed_is_said(tmp_path: Path, seed: int) -> None:
    recording = simulated(tmp_path / "run", seed=seed)
    shared = share(recording, "local_model", EAVESDROPPER, tmp_path / "shared")
    assert any("guesses it" in remark for remark in shared.remarks) == (seed == 0)


# ---- and it is still of use


def test_attacks_run_on_it(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", audit={})
    shared = share(run, "attribute.s", EAVESDROPPER, tmp_path / "shared", keep=["word"])
    again = Recording.open(tmp_path / "shared")
    assert shared.left_out == ()
    for name, target in (("majority", "attribute.s"), ("max_entropy", "attribute.s")):
        views = [observe(r, EAVESDROPPER, Target.parse(target), "1") for r in (run, again)]
        mine, theirs = (
            launch(attack_named(name), view, 0).probabilities[
                np.argsort(view.know(PublicRecords).records["x0"])
            ]
            for view in views
        )
        np.testing.assert_allclose(mine, theirs, atol=1e-9)
    with pytest.raises(FixRecording, match="nothing can be scored; attacks can still run"):
        again.truth()


def test_without_the_other_secrets_what_needs_them_says_so(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", audit={})
    shared = share(run, "attribute.s", EAVESDROPPER, tmp_path / "shared")
    assert shared.left_out == ("word",)
    again = Recording.open(tmp_path / "shared")
    view = observe(again, EAVESDROPPER, Target.parse("attribute.s"), "1")
    assert len(launch(attack_named("majority"), view, 0).probabilities) == 40
    with pytest.raises(FixData, match="no column 'word'"):
        launch(attack_named("max_entropy"), view, 0)
    alone = observe(again, EAVESDROPPER, Target("local_model"), "1")
    assert launch(attack_named("last_returned"), alone, 0).parameters.shape == (5 + 1,)


def test_one_link_alone(run: Recording, tmp_path: Path) -> None:
    share(run, "attribute.s", EAVESDROPPER, tmp_path / "shared", clients=["2"])
    again = Recording.open(tmp_path / "shared")
    assert again.clients == ("2",)
    assert {c for e in again.rounds for _, c in e.spans} == {"", "2"}
    assert {c for e in again.rounds for c in e.weights} == {"2"}
    for name, content in tables(tmp_path / "shared"):
        assert set(content["__client__"]) == {"2"}, name


def test_who_hears_sums_gets_sums(run: Recording, tmp_path: Path) -> None:
    share(run, "attribute.s", SECURE_SERVER, tmp_path / "shared")
    again = Recording.open(tmp_path / "shared")
    assert all(entry.aggregated and not entry.weights for entry in again.rounds)
    for (_, _, mine), (_, _, theirs) in zip(run.aggregates(), again.aggregates(), strict=True):
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name])
    with pytest.raises(ListenLonger, match="there is no link to share"):
        share(again, "attribute.s", EAVESDROPPER, tmp_path / "again")


def test_of_an_isolating_server_only_its_client(tmp_path: Path) -> None:
    training = {"rounds": 2, "learning_rate": 0.1, "isolate": "1"}
    recording = simulated(tmp_path / "run", training=training)
    share(recording, "attribute.s", ISOLATING_SERVER, tmp_path / "shared")
    again = Recording.open(tmp_path / "shared")
    assert again.clients == ("1",)
    assert {c for e in again.rounds for _, c in e.spans} == {"1"}
    assert observe(again, ISOLATING_SERVER, Target.parse("attribute.s"), "1").kinds


def test_labels_are_a_secret_too(tmp_path: Path) -> None:
    audit = {"attributes": ["s"], "label": True}
    recording = simulated(tmp_path / "run", audit=audit)
    out = share(recording, "attribute.s", EAVESDROPPER, tmp_path / "shared")
    assert "Labels" not in out.kinds
    assert not any("__label__" in content for _, content in tables(tmp_path / "shared"))
    out = share(recording, "label", EAVESDROPPER, tmp_path / "label")
    assert out.left_out == ("s",)
    assert not any({"s", "y"} & set(content) for _, content in tables(tmp_path / "label"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"target": "attribute.age"}, "no target 'attribute.age'; it has attribute"),
        ({"clients": ["9"]}, "no client '9'"),
        ({"keep": ["x0"]}, "'x0' is no secret of another target"),
        ({"threat": ISOLATING_SERVER}, "no client was isolated"),
        ({"threat": SECURE_SERVER, "clients": ["1"]}, "sums over all clients"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    run: Recording, tmp_path: Path, words: dict[str, Any], complaint: str
) -> None:
    asked = {"target": "attribute.s", "threat": EAVESDROPPER, **words}
    with pytest.raises(FixConfig, match=complaint):
        share(run, out=tmp_path / "shared", **asked)
    assert not (tmp_path / "shared").exists()


def test_the_command(workplace: Any) -> None:
    words = ("share", "run", "--target", "s", "--out", "shared", "--json")
    done = workplace.done(*words)
    said = json.loads(done.stdout)
    assert said["clients"] == ["site 0", "site 1", "site 2"]
    assert workplace.overheard("verify", "shared").returncode == 0
    assert "exists already" in workplace.refused(*words)


# ---- who may read it


def modes(folder: Path) -> set[tuple[int, int]]:
    """The folder's mode and, of each file in it, the file's."""
    own = folder.stat().st_mode & 0o777
    return {(own, file.stat().st_mode & 0o777) for file in folder.iterdir()}


def test_what_is_known_is_for_its_owner_only(run: Recording, tmp_path: Path) -> None:
    share(run, "attribute.s", EAVESDROPPER, tmp_path / "shared")
    for folder in (run.path / "side", run.path / "truth", tmp_path / "shared" / "side"):
        assert modes(folder) == {(0o700, 0o600)}, folder
