"""The end of a search without a winner: nobody is named, anywhere, and it says what to do."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console
from rltune.agents.errors import UserError
from rltune.analysis.show import show
from rltune.analysis.summary import Summary
from rltune.answer.conclude import conclude
from rltune.answer.tournament import write_scores
from rltune.backends.registry import config_class
from rltune.cli import main
from rltune.cli.run import _report
from rltune.exporting.export import export
from rltune.reporting.page import of_run
from rltune.results import Run, SearchResult
from rltune.runs.directory import RunDir
from rltune.runs.trials_table import TrialsTable
from rltune.samplers.proposer import open_study
from rltune.search.request import full_config, starts
from rltune.search.search import Search
from rltune.space.space import Space
from rltune.tracking import outcome

NAN = math.nan
REASON = "diverged: non-finite policy_loss at 128 env_steps"


def concluded(
    folder: Path,
    results: list[float | str],
    scores: dict[tuple[int, int], float],
    **options: object,
) -> tuple[RunDir, dict[str, object]]:
    """Return the run of a search whose trials had these values, or failed for these reasons."""
    search = Search(
        "ppo", "CartPole-v1", {"learning_rate": {"log": [1e-5, 1e-2]}}, budget=1000, name="run",
        trials=len(results), storage_path=folder, wandb="off", report=False, **options,
    )  # fmt: skip
    run = RunDir.create(folder / "run", search.spec.to_dict())
    config, space = config_class("ppo"), Space.from_dict(search.spec.space)
    study = open_study(run.study_path, space, starts=starts(space, "CartPole-v1", config))
    for result in results:
        asked = study.ask(lambda values: True)
        assert asked is not None
        failed = isinstance(result, str)
        attrs = {"env_steps": 1000, "budget_reached": 1000}
        study.tell(
            asked.number, "FAIL" if failed else "COMPLETE", None if failed else result,
            result if failed else "", attrs,
        )  # fmt: skip
    write_scores(run, scores)
    found = conclude(run, search.spec, study, scores, full_config(config, {}))
    TrialsTable(run.trials_path, ()).write(study.trials, True)
    study.close()
    return run, found


def shown(run: RunDir) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    show(run.path, console=console)
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("results", "scores", "tournament"),
    [
        ([REASON, REASON], {(0, seed): NAN for seed in range(100, 105)}, True),
        ([REASON, REASON], {}, True),
        ([REASON, REASON], {}, False),
        ([20.0, REASON], {(0, seed): NAN for seed in range(100, 105)}, True),
    ],
    ids=["defaults diverged", "none tested", "no tournament", "good on its tuning seed only"],
)
def test_a_search_without_a_winner_names_nobody(
    tmp_path: Path,
    results: list[float | str],
    scores: dict[tuple[int, int], float],
    tournament: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, found = concluded(tmp_path, results, scores, tournament=tournament)
    assert {file.name for file in run.best_dir.iterdir()} == {"answer.yaml", "scores.yaml"}
    assert "no answer" in str(found["answer"])
    assert found["test_score"] is found["beats_default"] is None
    assert not {"best_trial", "best_config", "command"} & set(found)
    assert Run(run).best is None
    result = SearchResult(Run(run))
    assert result.best is None
    assert result.answer is not None
    assert result.answer["winner"] is None
    assert _report(result) == 1
    assert "There is no answer" in capsys.readouterr().out

    page = shown(run)
    assert "finished" in page
    assert "There is no answer" in page
    assert f"most often so: {REASON}." in page
    assert "search where trainings are stable" in page
    assert "rltune resume" not in page
    assert "Configuration of" not in page
    assert "rltune train ppo" not in page

    summary = Summary(Run(run))
    assert summary.command is None
    assert main(["show", str(run.path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["best_trial"] is data["best_config"] is data["command"] is None
    report = of_run(summary)
    assert "There is no answer" in report.sentences[0]
    assert [card["name"] for card in report.cards] == ["Cost"]
    assert not any(table.id == "configuration" for table in report.tables)
    assert not any("config" in str(file) for file in outcome.files(run.path))
    with pytest.raises(UserError, match="ended without a winner; choose a trial"):
        export(Run(run))


def test_an_answer_that_falls_takes_its_configuration_along(tmp_path: Path) -> None:
    """Further test seeds may show that what was named diverges on most of them."""
    tested = {(0, 100): 20.0, (1, 100): 21.0}
    run, found = concluded(tmp_path, [20.0, 21.0], tested, test_seeds=1)
    assert found["best_trial"] in (0, 1)
    assert (run.best_dir / "config.yaml").exists()
    more = {(trial, seed): NAN for trial in (0, 1) for seed in range(101, 106)}
    found = conclude_again(tmp_path, run, {**tested, **more})
    assert "no answer" in str(found["answer"])
    assert {file.name for file in run.best_dir.iterdir()} == {"answer.yaml", "scores.yaml"}


def conclude_again(
    folder: Path, run: RunDir, scores: dict[tuple[int, int], float]
) -> dict[str, object]:
    from rltune.runs.search_spec import SearchSpec

    spec = SearchSpec.from_dict(run.spec)
    study = open_study(run.study_path, Space.from_dict(spec.space))
    try:
        return conclude(run, spec, study, scores, {})
    finally:
        study.close()


def test_what_trackers_get_are_the_numbers_of_the_answer(tmp_path: Path) -> None:
    scores = {(0, 100 + i): 300.0 + 10 * i for i in range(5)}
    scores |= {(1, 100 + i): 480.0 + 5 * i for i in range(5)}
    run, found = concluded(tmp_path, [300.0, 490.0], scores)
    answer = Run(run).answer
    assert answer is not None
    best = answer["ranking"][0]
    assert found["best_trial"] == best["trial"] == 1
    assert found["test_score"] == best["iqm"] == 490.0
    ends = (found["over_default"], found["over_default_low"], found["over_default_high"])
    assert ends == tuple(best["difference"])
    assert found["over_default"] == 490.0 - 320.0
    assert found["answer"] == answer["sentences"][0]
    card = next(c for c in of_run(Summary(Run(run))).cards if c["name"] == "Over the defaults")
    assert card["value"] == "+170.0"
    assert "(+170.0, 90 % interval" in answer["sentences"][0]
    assert "90 % interval" in card["note"]
    assert "beyond chance" in card["note"]


@pytest.mark.parametrize(("wanted", "refused"), [(1, True), (2, True), (3, False)])
def test_fewer_test_seeds_than_were_run_are_refused(
    tmp_path: Path, wanted: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {(0, 100 + i): 300.0 + 10 * i for i in range(3)}
    run, _ = concluded(tmp_path, [300.0], scores, test_seeds=3)
    before = (run.best_dir / "answer.yaml").read_text()
    monkeypatch.setattr("rltune.search.search.drive", lambda *args, **more: SearchResult(Run(run)))
    code = main(["resume", str(run.path), "--test-seeds", str(wanted), "--plain"])
    assert code == (2 if refused else 0)
    assert (run.best_dir / "answer.yaml").read_text() == before
