"""The summary of a run in the terminal, the answer first: `rltune show`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text
from rltune.analysis.learning_front import learning_front
from rltune.analysis.summary import Summary
from rltune.answer.model import Answer
from rltune.answer.sentences import without_interval
from rltune.backends.registry import is_own_code
from rltune.common.formats import (
    count,
    duration,
    interval,
    interval_title,
    plural,
    points,
    score,
    setting,
    short_path,
)
from rltune.common.terminal import Sheet, make_console, plain_table
from rltune.runs.reader import read_run

if TYPE_CHECKING:
    from rltune.answer.front import Front

STATES = {
    "COMPLETE": ("finished", "green"),
    "PRUNED": ("stopped early", "yellow"),
    "FAIL": ("failed", "red"),
    "RUNNING": ("running", "cyan"),
    "WAITING": ("waiting", ""),
}


def show(
    path: str | os.PathLike[str],
    *,
    as_json: bool = False,
    plain: bool = False,
    console: Console | None = None,
) -> None:
    """Print the run at ``path`` (or its name, or "latest"); ``plain`` without colours.

    Raises:
        UserError: there is no such run, or it is from a newer version.
    """
    summary = Summary(read_run(path))
    if as_json:
        json.dump(summary.to_dict(), sys.stdout, indent=2, ensure_ascii=False)
        print()
        return
    console = console or make_console(plain)
    if summary.kind == "train":
        _TrainingPage(summary, console).show()
    else:
        _SearchPage(summary, console).show()


def show_learning_front(
    path: str | os.PathLike[str], against: str, *, as_json: bool = False, plain: bool = False
) -> None:
    """Print the learning-curve front: the best trial by env steps.

    Raises:
        UserError: there is no such search, or no front against that.
    """
    frame = learning_front(read_run(path), against)
    if as_json:
        print(frame.to_json(orient="records", indent=2))
        return
    console = make_console(plain)
    table = plain_table("env_steps", "trial", "objective", "on test seeds", "seeds", numbers_from=0)
    for row in frame.to_dict("records"):
        test = "-"
        if row["seeds"]:
            test = score(row["test"])
            ends = interval(row["low"], row["high"])
            test += f" ({ends})" if ends else ""
        cells = count(row["env_steps"]), str(row["trial"]), score(row["objective"])
        table.add_row(*cells, test, str(row["seeds"]))
    console.print(table)
    console.print(Text("Chosen for these values on tuning seeds: expect less on others.", "yellow"))


class _Page(Sheet):
    """The sections that searches and trainings have in common."""

    def __init__(self, summary: Summary, console: Console) -> None:
        super().__init__(console)
        self.summary = summary
        self.place = shlex.quote(short_path(summary.path))

    def title(self, facts: Iterable[str]) -> None:
        summary = self.summary
        line = Text.assemble(
            ("rltune", "bold cyan"),
            (f"  {summary.spec.get('agent')} on {summary.spec.get('env')}", "bold"),
            (f"  {summary.run.name}", "dim"),
        )
        self.print(line)
        style = {"running": "cyan", "finished": "green", "unfinished": "yellow"}
        words = {"unfinished": "stopped before its end"}.get(summary.status, summary.status)
        self.print(Text.assemble((words, style[summary.status]), *(f" · {fact}" for fact in facts)))

    def commands(self, commands: Iterable[tuple[str, str]]) -> None:
        """Print commands with what they do; never folded, to be copied."""
        self.section("Next")
        for command, purpose in commands:
            self.console.print(Text(f"  # {purpose}", "dim"), soft_wrap=True)
            self.console.print(Text(f"  {command}"), soft_wrap=True)

    def files(self, files: Iterable[tuple[str, str]]) -> None:
        self.section("Files", f"in {self.place}")
        table = plain_table("", "")
        for name, what in files:
            if (self.summary.path / name).exists():
                table.add_row(name, Text(what, "dim"))
        self.line(table)


class _SearchPage(_Page):
    def show(self) -> None:
        summary, spec = self.summary, self.summary.spec
        budget = f"{count(spec.get('budget', 0))} env steps a trial"
        self.title([plural(summary.tried, "trial"), budget])
        if summary.front is not None:
            self._front(summary.front)
        else:
            self._answer()
        self._best_config()
        self._trials()
        self._cost()
        self.files(
            [
                ("best/config.yaml", "the configuration above"),
                ("best/schedule.yaml", "how it changes on the way"),
                ("best/checkpoint.pt", "an agent trained with it"),
                ("best/answer.yaml", "the answer, to be read by programs"),
                ("best/front.yaml", "the front, with a command for each of its members"),
                ("trials.parquet", "a row per trial"),
                ("history", "the learning curves, a row per iteration"),
                ("study.db", "the Optuna study"),
                ("run.yaml", "what was searched, how, and with which versions"),
            ]
        )
        self._next()

    def _answer(self) -> None:
        answer, best = self.summary.answer, self.summary.best
        if answer is None:
            self.section("So far" if self.summary.status != "finished" else "Answer")
            if best is None:
                self.line(self.summary.no_result)
                return
            self.line(f"Trial {best[0]} scored {score(best[1])}, the best of the search.")
            caution = "It was chosen for that score, on its one tuning seed: expect less on others."
            self.line(Text(caution, "yellow"))
            if self.summary.tested:
                tested = plural(self.summary.tested, "training")
                self.line(f"The tournament on test seeds has begun: {tested} done.")
            return
        self._conclusions(answer)
        if answer.ranking:
            self._ranking(answer)

    def _conclusions(self, answer: Answer | Front) -> None:
        self.section("Answer")
        first, *others = answer.sentences
        self.line(Text(first, "bold"))
        for sentence in others:
            self.line(sentence)
        for warning in answer.warnings:
            self.line(Text(f"! {warning}", "yellow"))

    def _front(self, front: Front) -> None:
        self._conclusions(front)
        known = [each for member in front.members for each in member.estimates.values()]
        note = "as searched"
        if front.tested:
            title = interval_title((each.low, each.high) for each in known)
            note = f"interquartile means on test seeds, {title}"
        self.section("Front", note)
        names = [goal.name + (" (less is better)" if goal.minimize else "") for goal in front.goals]
        table = plain_table("", *names)
        for member in front.members:
            cells = []
            for goal in front.goals:
                estimate = member.estimates.get(goal.name)
                value = estimate.value if estimate else member.tuning.get(goal.name)
                cell = score(value)
                if estimate and (ends := interval(estimate.low, estimate.high)):
                    cell += f" ({ends})"
                elif goal.name in member.scores:
                    cell += f" ({points(member.scores[goal.name].values())})"
                cells.append(cell)
            mark = "*" if member.on_front else "x" if member.dominated_by else " "
            table.add_row(f"{mark} {member.label}", *cells, style="" if member.on_front else "dim")
        self.line(table)
        self.line(Text("* on the front   x dominated beyond chance", "dim"))
        scores = [row.values() for member in front.members for row in member.scores.values()]
        for sentence in without_interval(scores):
            self.line(Text(sentence, "dim"))

    def _ranking(self, answer: Answer) -> None:
        seeds = max(len(finalist.scores) for finalist in answer.ranking)
        self.section("Ranking", f"on {plural(seeds, 'test seed')}, interquartile means")
        title = interval_title((finalist.low, finalist.high) for finalist in answer.ranking)
        table = plain_table("", "IQM", title, "worst", "seeds", "tuning", numbers_from=1)
        for finalist in answer.ranking:
            won = finalist.trial == answer.winner
            tied = finalist.tied and answer.winner is not None
            mark = ">" if won else "=" if tied else " "
            ends = interval(finalist.low, finalist.high) or points(finalist.scores.values())
            numbers = score(finalist.iqm), ends, score(finalist.worst), str(len(finalist.scores))
            style = "bold" if won else "" if tied else "dim"
            table.add_row(
                f"{mark} {finalist.label}", *numbers, score(finalist.objective), style=style
            )
        self.line(table)
        if answer.winner is not None:
            legend = "> the answer"
            if any(f.tied and f.trial != answer.winner for f in answer.ranking):
                legend += "   = the best one's lead over it is not proven"
            self.line(Text(legend, "dim"))
        for sentence in without_interval(f.scores.values() for f in answer.ranking):
            self.line(Text(sentence, "dim"))

    def _best_config(self) -> None:
        summary = self.summary
        answer = summary.front or summary.answer
        best = answer.best if answer else None
        trial = best.trial if best else summary.best and summary.best[0]
        if trial is None:
            return
        config, defaults = summary.config(trial), summary.defaults
        shown = {
            name: value
            for name, value in config.items()
            if name in summary.searched or (defaults and not _same(value, defaults.get(name)))
        }
        self.section(f"Configuration of {best.label if best else f'trial {trial}'}")
        changed = defaults is not None and any(
            not _same(value, defaults.get(name)) for name, value in shown.items()
        )
        table = plain_table("", "value", *(["default"] if changed else []), "searched")
        for name, value in shown.items():
            row = [setting(value), _dimension(summary.searched.get(name))]
            if changed:
                row.insert(1, setting(defaults[name]) if defaults and name in defaults else "")
            table.add_row(name, row[0], *(Text(cell, "dim") for cell in row[1:]))
        self.line(table)

    def _trials(self) -> None:
        summary = self.summary
        if not len(summary.trials):
            return
        self.section("Trials")
        table = plain_table("", "", "")
        table.columns[-1].no_wrap = False  # trials may have been stopped at many places
        for state, (word, style) in STATES.items():
            if not summary.states.get(state):
                continue
            detail = ""
            if state == "RUNNING" and not summary.running:
                word = "interrupted"
            if state == "WAITING" and summary.status == "finished":
                word, detail = "not tried", "known-good settings, more than there were trials"
            if state == "PRUNED":
                places = summary.stops.items()
                detail = ", ".join(f"{n} at {count(place)} env steps" for place, n in places)
            table.add_row(Text(str(summary.states[state]), style), word, Text(detail, "dim"))
        self.line(table)
        for failure in (*summary.ruled_out, *summary.failures[:5]):
            names = ", ".join(map(str, failure.trials[:8])) + (
                " ..." if len(failure.trials) > 8 else ""
            )
            which = "trial" if len(failure.trials) == 1 else "trials"
            reason = failure.reason.strip().splitlines()[0]
            self.line(Text.assemble((f"{which} {names}: ", "red"), reason))

    def _cost(self) -> None:
        cost = self.summary.cost
        if cost.env_steps:
            self.section("Cost")
            self.line(
                f"{count(cost.env_steps)} env steps, {duration(cost.seconds)} of training in "
                f"{duration(cost.clock)} on the clock"
            )

    def _next(self) -> None:
        summary, place = self.summary, self.place
        commands = []
        if summary.status == "unfinished" and not summary.all_failed:
            commands.append((f"rltune resume {place}", "go on with the search"))
        if seeds := summary.more_test_seeds:
            commands.append(
                (f"rltune resume {place} --test-seeds {seeds}", "prove the lead, if it is real")
            )
        acts = not is_own_code(str(summary.spec["agent"]))
        if acts and (summary.path / "best" / "checkpoint.pt").exists():
            commands.append((f"rltune play {place}", "watch the agent"))
            commands.append((f"rltune eval {place}", "measure it on 100 episodes"))
        if summary.front is not None:
            best = [member for member in summary.front.members if member.on_front]
            commands += [(member.command, f"train {member.label} again") for member in best]
        elif summary.command:
            commands.append((summary.command, "train the configuration again"))
        if commands:
            self.commands(commands)


class _TrainingPage(_Page):
    def show(self) -> None:
        summary, spec, history = self.summary, self.summary.spec, self.summary.history
        total = int(spec.get("total_timesteps", 0))
        self.title([f"{count(summary.cost.env_steps)} of {count(total)} env steps"])
        self.section("Training")
        if not len(history):
            self.line("Nothing has been recorded yet.")
        else:
            self._scores()
        self._config()
        self.files(
            [
                ("checkpoints/last.pt", "the agent as it is now"),
                ("checkpoints/best.pt", "the agent of the best evaluation"),
                ("history", "the learning curves, a row per iteration"),
                ("run.yaml", "what was trained, and with which versions"),
            ]
        )
        commands = []
        if summary.status == "unfinished":
            commands.append((f"rltune resume {self.place}", "go on with the training"))
        if (summary.path / "checkpoints" / "last.pt").exists():
            commands.append((f"rltune play {self.place}", "watch the agent"))
            commands.append((f"rltune eval {self.place}", "measure it on 100 episodes"))
        if commands:
            self.commands(commands)

    def _scores(self) -> None:
        history = self.summary.history
        last = history.iloc[-1]
        table = plain_table("", "", "")
        evaluations = history.dropna(subset=["eval_return"])
        if len(evaluations):
            places = {"last": -1, "best": int(evaluations["eval_return"].argmax())}
            for name, row in ((f"{k} evaluation", evaluations.iloc[i]) for k, i in places.items()):
                place = f"after {count(row['env_steps'])} env steps"
                table.add_row(name, score(row["eval_return"]), Text(place, "dim"))
        table.add_row("mean training reward", score(float(last["mean_reward"])), "")
        table.add_row("time", duration(self.summary.cost.seconds), "")
        self.line(table)

    def _config(self) -> None:
        config = self.summary.spec.get("config") or {}
        if config:
            self.section("Configuration")
            table = plain_table("", "")
            for name, value in config.items():
                table.add_row(name, setting(value))
            self.line(table)


def _dimension(values: Mapping[str, Any] | None) -> str:
    """Return "log 1e-05 to 0.01" of a dimension written as {log: [1e-5, 0.01]}."""
    # int comes before log: beside {int: [4, 128]}, log is a flag.
    for kind in ("uniform", "int", "log", "pow2", "one_minus_log"):
        if values and kind in values:
            low, high = values[kind]
            return f"{setting(low)} to {setting(high)}, {kind}"
    if values and "choice" in values:
        return ", ".join(map(setting, values["choice"]))
    return ""


def _same(a: object, b: object) -> bool:
    return setting(a) == setting(b)
