"""The answer of a search over several agents: which one, how sure it is, what the next costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rltune.answer.model import label
from rltune.common.formats import duration, gain, interval, plural, score
from rltune.common.plain import plain
from rltune.stats.estimates import difference, probability_of_improvement

if TYPE_CHECKING:
    from rltune.results import Run


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """What the search of one agent has come to.

    Attributes:
        agent: its name
        best: the best objective of its trials, on the tuning seed; None: it has none
        trials: that have ended
        scores: of its named configuration on test seeds; empty: it was in no tournament
        trial, label: the named configuration's; the label is such as "the defaults"
        iqm, low, high: of the scores, with the interval
        seconds: of a training of the named configuration; None: unknown
        dropped: the round after which it was left behind; None: it led to the end
    """

    agent: str
    best: float | None
    trials: int
    scores: dict[int, float] = field(default_factory=dict)
    trial: int | None = None
    label: str = ""
    iqm: float | None = None
    low: float = -math.inf
    high: float = math.inf
    seconds: float | None = None
    dropped: int | None = None


@dataclass(frozen=True, kw_only=True)
class AgentAnswer:
    """The agents, best first, and the sentences; ``agent`` is the one to use, if there is one."""

    agent: str | None
    sure: bool
    results: tuple[AgentResult, ...]
    left_out: dict[str, str]
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for YAML."""
        return plain(asdict(self))  # type: ignore[no-any-return]


def result_of(agent: str, run: Run, dropped: int | None) -> AgentResult:
    """Return what the run directory of an agent's search says."""
    trials = run.trials()
    ended = trials[trials["state"].isin(["COMPLETE", "PRUNED"])]
    best = next(iter(objectives(run)), None)
    answer = run.answer
    named = None
    if dropped is None and answer is not None and answer["winner"] is not None:
        named = next(r for r in answer["ranking"] if r["trial"] == answer["winner"])
    if named is None:
        return AgentResult(agent=agent, best=best, trials=len(ended), dropped=dropped)
    history = run.history()
    tests = history[(history["role"] == "test") & (history["trial"] == named["trial"])]
    each = tests.groupby("seed")["time"].max()
    return AgentResult(
        agent=agent,
        best=best,
        trials=len(ended),
        scores=named["scores"],
        trial=named["trial"],
        label=label(named["trial"], named["origins"]),
        iqm=named["iqm"],
        low=named["low"],
        high=named["high"],
        seconds=float(each.mean()) if len(each) else None,
        dropped=dropped,
    )


def objectives(run: Run) -> list[float]:
    """Return the objectives of a search's whole trials, else of those stopped early; best first."""
    trials = run.trials()
    valued = trials[trials["objective"].notna()]
    whole = valued[valued["state"] == "COMPLETE"]
    found = whole if len(whole) else valued[valued["state"] == "PRUNED"]
    return sorted(map(float, found["objective"]), reverse=True)


def build(results: Sequence[AgentResult], left_out: Mapping[str, str]) -> AgentAnswer:
    """Return the answer: the agent whose configuration is best on the test seeds.

    Of equal ones, it is the one whose training is shorter.
    Where there was no time to test all that led to the end, it is the one with the best trial.
    """
    leading = [result for result in results if result.dropped is None]
    tested = bool(leading) and all(result.scores for result in leading)
    leading.sort(key=lambda result: (-_value(result, tested=tested), _seconds(result)))
    behind = [result for result in results if result.dropped is not None]
    behind.sort(
        key=lambda result: (result.dropped or 0, _value(result, tested=False)), reverse=True
    )
    sure, sentences = False, ["No agent has come to a result."]
    usable = [result for result in leading if math.isfinite(_value(result, tested=tested))]
    if usable and tested:
        sentences = [_named(usable[0])]
        if len(usable) > 1:
            lead, sure = _lead(usable[0], usable[1])
            sentences += [lead, _cost(usable[0], usable[1])]
    elif usable:
        sentences = [_untested(usable[0], [result for result in leading if not result.scores])]
    sentences += _behind(behind, left_out)
    return AgentAnswer(
        agent=usable[0].agent if usable else None,
        sure=sure,
        results=(*leading, *behind),
        left_out=dict(left_out),
        sentences=tuple(sentence for sentence in sentences if sentence),
    )


def _value(result: AgentResult, *, tested: bool) -> float:
    value = result.iqm if tested else result.best
    return -math.inf if value is None else value


def _seconds(result: AgentResult) -> float:
    return math.inf if result.seconds is None else result.seconds


def _untested(best: AgentResult, untested: Sequence[AgentResult]) -> str:
    return (
        f"Perhaps {best.agent}: its best trial has {score(best.best)}. That is no proof: there was "
        f"no time to train the best of {' and '.join(result.agent for result in untested)} again "
        "on test seeds. Give a longer --time-limit."
    )


def _named(best: AgentResult) -> str:
    ends = interval(best.low, best.high)
    return (
        f"Use {best.agent} with {best.label}: {score(best.iqm)}"
        f"{f' ({ends})' if ends else ''} on {plural(len(best.scores), 'test seed')}."
    )


def _lead(best: AgentResult, second: AgentResult) -> tuple[str, bool]:
    """Say whether the lead over the second agent is beyond chance."""
    assert best.iqm is not None
    assert second.iqm is not None
    own, others = list(best.scores.values()), list(second.scores.values())
    _, sure = difference(own, others)
    equal = best.iqm == second.iqm
    chance = probability_of_improvement(own, others)
    if equal:
        lead = f"{second.agent} reaches the same, {score(second.iqm)}: both may be used"
    else:
        verdict = "beyond chance" if sure else "not beyond chance: both may be used"
        ahead = gain(best.iqm, second.iqm)
        lead = f"It is ahead of {second.agent} ({score(second.iqm)}) by {ahead}, {verdict}"
    return (
        f"{lead}; a training of {best.agent} is the better one with a probability of "
        f"{chance.value:.0%} ({chance.low:.0%} to {chance.high:.0%}).",
        sure and not equal,
    )


def _cost(best: AgentResult, second: AgentResult) -> str:
    if best.seconds is None or second.seconds is None:
        return ""
    return (
        f"A training takes {duration(best.seconds)} with {best.agent} and "
        f"{duration(second.seconds)} with {second.agent}."
    )


def _behind(behind: Sequence[AgentResult], left_out: Mapping[str, str]) -> list[str]:
    """Say which agents were left behind, with the best of their trials, and which can't act."""
    found = []
    if behind:
        each = [
            f"{result.agent} (best {score(result.best)} after {plural(result.trials, 'trial')})"
            for result in behind
        ]
        found.append(f"Left behind: {', '.join(each)}.")
    if left_out:
        found.append(f"Left out, as they can't be trained there: {', '.join(left_out)}.")
    return found
