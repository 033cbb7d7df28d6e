"""The report: one HTML page that needs no network, and Markdown for a pull request."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from rltune.analysis.summary import Summary
from rltune.answer.front import Front
from rltune.answer.model import Answer
from rltune.answer.sentences import gain_interval, without_interval
from rltune.common.formats import (
    count,
    duration,
    gain,
    interval,
    interval_title,
    plural,
    points,
    score,
    setting,
)
from rltune.common.version import __version__
from rltune.reporting.charts import LIGHTER, Chart
from rltune.reporting.clip import embedded as embedded_clip

STATES = {"COMPLETE": "whole budget", "PRUNED": "stopped early", "FAIL": "failed",
          "RUNNING": "running", "WAITING": "waiting"}  # fmt: skip
NOT_PROVEN = "lead not proven"
REFRESH = 20  # seconds, of the page of a search that runs


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    name: str
    number: bool = True
    wide: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row of a table; ``won`` is the answer."""

    cells: Sequence[str]
    won: bool = False


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    id: str
    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[TableRow]
    note: str = ""

    def markdown(self) -> str:
        """Return the table for a pull request."""
        lines = ["| " + " | ".join(column.name for column in self.columns) + " |"]
        lines.append("|" + "|".join("---:" if c.number else "---" for c in self.columns) + "|")
        for row in self.rows:
            cells = [cell.replace("|", "\\|") for cell in row.cells]
            lines.append(
                "| " + " | ".join(f"**{c}**" if row.won and c else c for c in cells) + " |"
            )
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Page:
    """The content of a page: the answer first, then tables and charts.

    Attributes:
        facts: about the run, in a few words each
        cards: the numbers of the first screen, each with name, value and note
        command: to be copied
        clip: of the winner (`rltune.reporting.clip.embedded`)
        trials: a table to be sorted, at the end
        refresh: seconds after which the page loads itself again
    """

    title: str
    facts: Sequence[str]
    heading: str
    sentences: Sequence[str]
    warnings: Sequence[str] = ()
    cards: Sequence[Mapping[str, str]] = ()
    command: str | None = None
    clip: Mapping[str, str] | None = None
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    trials: Table | None = None
    refresh: int | None = None
    made_from: str

    @property
    def footer(self) -> str:
        """The footer: the version of rltune, and the run."""
        return f"rltune {__version__}. Made from {self.made_from}."

    def html(self) -> str:
        """Return the page as one file that needs no network."""
        from jinja2 import Environment
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs

        environment = Environment(autoescape=True, trim_blocks=False)
        source = files("rltune.reporting").joinpath("page.html").read_text()
        drawn = [
            {
                "name": chart.name,
                "title": chart.title,
                "says": chart.says,
                "height": chart.height * chart.rows,
                "wide": chart.is_wide,
                "data": Markup(embedded(chart.plotly())),
            }
            for chart in self.charts
        ]
        # Plotly's own code, from the package that is installed.
        code = Markup(get_plotlyjs() if drawn else "")
        lighter = Markup(json.dumps(LIGHTER))
        template = environment.from_string(source)
        return template.render(page=self, charts=drawn, plotly=code, lighter=lighter)

    def card(self) -> str:
        """Return the first screen as a piece of HTML for a notebook."""
        from jinja2 import Environment

        source = files("rltune.reporting").joinpath("card.html").read_text()
        return Environment(autoescape=True).from_string(source).render(page=self)

    def markdown(self, *, pictures: bool = True) -> str:
        """Return the answer, the tables and the pictures' names."""
        parts = [f"# {self.title}", " · ".join(self.facts), *self.sentences]
        if self.warnings:
            parts.append("\n".join(f"- {warning}" for warning in self.warnings))
        if self.command:
            parts.append(f"```bash\n{self.command}\n```")
        for table in self.tables:
            parts += [f"## {table.title}", *([table.note] if table.note else []), table.markdown()]
        for chart in self.charts if pictures else ():
            parts += [f"## {chart.title}", f"![{chart.title}]({chart.name}.png)", chart.says]
        return "\n\n".join(parts) + "\n"


def of_run(summary: Summary, charts: Sequence[Chart] = ()) -> Page:
    """Return the page of a run, with the clip of its winner if there is one."""
    spec = summary.spec
    status = {"unfinished": "stopped before its end"}.get(summary.status, summary.status)
    return Page(
        title=f"{spec.get('agent')} on {spec.get('env')}",
        facts=[summary.run.name, status, *facts(summary)],
        heading="So far" if (summary.answer or summary.front) is None else "The answer",
        sentences=sentences(summary),
        warnings=warnings(summary),
        cards=cards(summary),
        command=summary.command,
        clip=embedded_clip(summary.path),
        tables=tables(summary),
        charts=charts,
        trials=all_trials(summary),
        refresh=REFRESH if summary.running else None,
        made_from="the run directory alone",
    )


def embedded(figure: Mapping[str, Any]) -> str:
    """Return JSON that may stand in a script element: nothing in it can end the element."""
    from plotly.utils import PlotlyJSONEncoder

    text = json.dumps(figure, cls=PlotlyJSONEncoder)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# ---------------------------------------------------------------------------------------- the words


def facts(summary: Summary) -> list[str]:
    """Return facts about the run, in a few words each."""
    spec = summary.spec
    if summary.kind == "train":
        return [f"seed {spec.get('seed')}", f"{count(summary.cost.env_steps)} env steps"]
    return [
        plural(summary.tried, "trial"),
        f"{count(spec.get('budget', 0))} env steps a trial",
        f"sampler {spec.get('sampler')}, scheduler {spec.get('scheduler')}",
    ]


def sentences(summary: Summary) -> list[str]:
    """Return the sentences of the answer, or of the search before it has one."""
    if summary.answer is not None:
        found = list(summary.answer.sentences)
        if seeds := summary.more_test_seeds:
            command = f"rltune resume {summary.run.name} --test-seeds {seeds}"
            found.append(f"To prove the lead, if it is real: {command}")
        return found
    if summary.front is not None:
        return list(summary.front.sentences)
    if summary.kind == "train":
        return ["One training on one seed: what another seed gives is not known."]
    if summary.best is None:
        return [summary.no_result]
    trial, value = summary.best
    found = [
        f"Trial {trial} scored {score(value)}, the best of the search so far.",
        "It was chosen for that score, on its tuning seeds: expect less on others.",
    ]
    if summary.tested:
        found.append(f"The tournament has begun: {plural(summary.tested, 'training')} done.")
    return found


def warnings(summary: Summary) -> Sequence[str]:
    """Return warnings about the answer."""
    answer = summary.answer or summary.front
    return answer.warnings if answer else ()


def cards(summary: Summary) -> list[dict[str, str]]:
    """Return the numbers of the first screen."""
    found = []
    answer = summary.answer
    best = answer.best if answer else None
    if best is not None and answer is not None and math.isfinite(best.iqm):
        seeds = plural(len(best.scores), "test seed")
        ends = interval(best.low, best.high)
        few = f"{points(best.scores.values())}: too few for an interval"
        note = f"95 % interval {ends}, {seeds}" if ends else few
        found.append(
            {"name": f"Test return of {best.label}", "value": score(best.iqm), "note": note}
        )
        default = next((finalist for finalist in answer.ranking if finalist.is_default), None)
        if best.difference is not None and default is not None:
            how = "beyond chance" if best.better_than_default else "a lead that is not proven"
            note = f"{how}{gain_interval(best.difference, '; ')}"
            value = gain(best.iqm, default.iqm)
            found.append({"name": "Over the defaults", "value": value, "note": note})
        for other in answer.ranking:
            if other.trial in best.over_known_good:
                chance = best.over_known_good[other.trial]
                found.append(
                    {
                        "name": f"Beats {other.label}",
                        "value": f"{100 * chance.value:.0f} %",
                        "note": f"of runs; 95 % interval {100 * chance.low:.0f} to "
                        f"{100 * chance.high:.0f} %",
                    }
                )
        if answer.tuning_gap is not None and math.isfinite(answer.tuning_gap):
            found.append(
                {
                    "name": "Tuning gap",
                    "value": score(answer.tuning_gap),
                    "note": "what the search's best lost on test seeds",
                }
            )
    elif summary.kind != "train" and summary.best is not None:
        found.append({"name": "Best of the search", "value": score(summary.best[1]),
                      "note": "on its tuning seeds"})  # fmt: skip
    cost = summary.cost
    found.append(
        {
            "name": "Cost",
            "value": duration(cost.clock),
            "note": f"{count(cost.env_steps)} env steps, {duration(cost.seconds)} of training",
        }
    )
    return found


# --------------------------------------------------------------------------------------- the tables


def tables(summary: Summary) -> list[Table]:
    """Return the tables that the run carries."""
    found = [ranking(summary.answer) if summary.answer and summary.answer.ranking else None,
             front(summary.front) if summary.front else None, configuration(summary),
             reasons(summary)]  # fmt: skip
    return [table for table in found if table is not None]


def ranking(answer: Answer) -> Table:
    """Return the finalists, best first."""
    title = interval_title((finalist.low, finalist.high) for finalist in answer.ranking)
    rows = []
    for finalist in answer.ranking:
        won = finalist.trial == answer.winner
        chance = "" if finalist.improvement is None else f"{100 * finalist.improvement.value:.0f} %"
        tied = finalist.tied and answer.winner is not None
        mark = "the answer" if won else NOT_PROVEN if tied else ""
        ends = interval(finalist.low, finalist.high) or points(finalist.scores.values())
        cells = [finalist.label, mark, score(finalist.iqm), ends, score(finalist.worst),
                 str(len(finalist.scores)), score(finalist.objective), chance]  # fmt: skip
        rows.append(TableRow(cells, won))
    columns = [TableColumn("finalist", number=False), TableColumn("verdict", number=False),
               *map(TableColumn, ("test return (IQM)", title, "worst seed", "seeds",
                                  "in the search", "beats the defaults"))]  # fmt: skip
    notes = []
    if any(row.cells[1] == NOT_PROVEN for row in rows):
        notes.append("Lead not proven: that the highest is above it can be luck.")
    notes += without_interval(finalist.scores.values() for finalist in answer.ranking)
    if any(row.cells[-1] for row in rows):
        notes.append("The last column is the share of runs that score above a run of the defaults.")
    return Table("ranking", "Ranking on test seeds", columns, rows, " ".join(notes))


def front(found: Front) -> Table:
    """Return the table of the front's members and of the configurations they dominate."""
    rows = []
    for member in found.members:
        cells = [member.label, "on the front" if member.on_front else "beaten"]
        for goal in found.goals:
            estimate = member.estimates.get(goal.name)
            cells.append(score(estimate.value if estimate else member.tuning.get(goal.name)))
            if found.tested:
                ends = interval(estimate.low, estimate.high) if estimate else ""
                cells.append(ends or points(member.scores.get(goal.name, {}).values()))
        rows.append(TableRow(cells, won=member is found.best))
    columns = [TableColumn("configuration", number=False), TableColumn("verdict", number=False)]
    for goal in found.goals:
        columns.append(TableColumn(goal.name))
        if found.tested:
            known = [m.estimates[goal.name] for m in found.members if goal.name in m.estimates]
            columns.append(TableColumn(interval_title((e.low, e.high) for e in known)))
    note = "Commands for each are in best/front.yaml. "
    note += "On test seeds." if found.tested else "On tuning seeds: nothing is tested."
    return Table("front-table", "The front", columns, rows, note)


def configuration(summary: Summary) -> Table | None:
    """Return the configuration to use beside the agent's own."""
    if summary.kind == "train":
        config = summary.spec.get("config") or {}
        rows = [TableRow([name, setting(value)]) for name, value in config.items()]
        columns = [TableColumn("name", number=False), TableColumn("value", number=False)]
        return Table("configuration", "Configuration", columns, rows)
    best = summary.answer.best if summary.answer else None
    trial = best.trial if best else summary.best and summary.best[0]
    if trial is None:
        return None
    config, defaults = summary.config(trial), summary.defaults or {}
    rows = []
    for name, value in config.items():
        own = setting(defaults[name]) if name in defaults else ""
        if name in summary.searched or (own and own != setting(value)):
            space = summary.searched.get(name)
            cells = [name, setting(value), own, "" if space is None else in_words(space)]
            rows.append(TableRow(cells, own not in ("", setting(value))))
    columns = [TableColumn(name, number=False) for name in ("name", "value", "default", "searched")]
    title = f"Configuration of {best.label if best else f'trial {trial}'}"
    return Table("configuration", title, columns, rows, "In bold: not the agent's default.")


def in_words(dimension: Mapping[str, Any]) -> str:
    """Return a dimension of the space as people read it."""
    kind, value = next(iter(dimension.items()))
    when = dimension.get("when")
    text = ", ".join(map(setting, value)) if kind == "choice" else (
        f"{setting(value[0])} to {setting(value[1])}, {kind}" if isinstance(value, list) else
        f"{kind} {setting(value)}"
    )  # fmt: skip
    if when:
        text += f", when {', '.join(f'{k} is {setting(v)}' for k, v in when.items())}"
    return text


def reasons(summary: Summary) -> Table | None:
    """Return the table of reasons: of failed trials, and of those that stop rules ended."""
    if summary.kind == "train":
        return None
    rows = [
        TableRow(
            [what, group.reason, str(len(group.trials)), ", ".join(map(str, group.trials[:12]))]
        )
        for what, groups in (("failed", summary.failures), ("stopped", summary.ruled_out))
        for group in groups
    ]
    if not rows:
        return None
    columns = [TableColumn("what", number=False), TableColumn("reason", number=False, wide=True),
               TableColumn("trials"), TableColumn("which", number=False)]  # fmt: skip
    return Table("reasons", "Trials that went wrong", columns, rows)


def all_trials(summary: Summary) -> Table | None:
    """Return a row for each trial."""
    trials = summary.trials
    if summary.kind == "train" or not len(trials):
        return None
    names = [name for name in summary.searched if f"config.{name}" in trials]
    rows = []
    for row in trials.to_dict("records"):
        state = STATES.get(row["state"], row["state"])
        cells = [
            str(row["trial"]), state, score(_known(row["objective"])),
            count(_known(row["budget_reached"]) or 0), duration(_known(row["seconds"])),
            row["origin"], row["reason"] or "",
        ]  # fmt: skip
        cells += ["" if row[f"config.{n}"] is None or row[f"config.{n}"] != row[f"config.{n}"]
                  else setting(row[f"config.{n}"]) for n in names]  # fmt: skip
        rows.append(TableRow(cells))
    columns = [TableColumn("trial"), TableColumn("state", number=False),
               *map(TableColumn, ("value", "env_steps", "training")),
               TableColumn("origin", number=False), TableColumn("reason", number=False, wide=True),
               *map(TableColumn, names)]  # fmt: skip
    return Table("trials", "All trials", columns, rows)


def _known(value: Any) -> Any:
    return None if value is None or value != value else value
