"""Cost measurement: train a configuration for some seconds, in a process like a worker's.

`CostMeter` starts the process (`python -m rltune.planning.measure`). It reads a question per line
and writes an answer per line, in JSON. It measures one configuration at a time, and throws away
what the agent learns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import environments
from rltune.agents.errors import UserError
from rltune.agents.machine.memory import peak_memory
from rltune.planning.evaluations import evaluation_plan
from rltune.schedulers.registry import rungs_of
from rltune.space.surroundings import split

if TYPE_CHECKING:
    from rltune.backends.base import Trainer
    from rltune.runs.search_spec import SearchSpec

SLICE = 64  # env steps between two looks at the clock, where updates are more frequent
WARM_UP_SHARE = 0.2  # of the seconds, for the steps before the first update
SHORT_WARM_UP = 500  # env steps, when the real one takes longer than that
FIRST_CUT = 200  # steps of the first evaluation; longer ones follow while there is time
EVALUATION_SHARE = 0.25  # of the seconds, for an evaluation
MAX_GROWTH = 10.0  # episodes may become so many times longer, if the environment lets them


@dataclass(frozen=True)
class MeasuredCost:
    """Seconds of a kind: on the clock, and of the processor."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: MeasuredCost) -> MeasuredCost:
        return MeasuredCost(self.wall + other.wall, self.cpu + other.cpu)

    def __sub__(self, other: MeasuredCost) -> MeasuredCost:
        return MeasuredCost(self.wall - other.wall, self.cpu - other.cpu)

    def __mul__(self, factor: float) -> MeasuredCost:
        return MeasuredCost(self.wall * factor, self.cpu * factor)


@dataclass(frozen=True)
class Measurement:
    """The cost of a configuration's whole budget, foreseen from its first seconds.

    Attributes:
        budget: env steps of the whole budget
        warm_up: those before the first update
        collecting, learning: of an env step before and after the first update
        evaluations: of all of them together, if episodes stay as long as they were seen last
        longest: the same if they become as long as the environment lets them, up to `MAX_GROWTH`
        memory: bytes of the process, with a replay memory as full as it will be
        env_steps: that were really done
        is_whole: whether that was the whole budget
        checkpoint: bytes of a checkpoint without the replay memory
        replay: bytes of that memory when it is as full as it will be; an image is compressed then
    """

    budget: int
    warm_up: int
    collecting: MeasuredCost
    learning: MeasuredCost
    evaluations: MeasuredCost
    longest: MeasuredCost
    memory: int
    env_steps: int
    is_whole: bool
    checkpoint: int = 0
    replay: int = 0

    @property
    def likely(self) -> MeasuredCost:
        """The whole budget, with evaluations in the middle of what is possible."""
        return self.until(self.budget)

    @property
    def training(self) -> MeasuredCost:
        """The whole budget without evaluations."""
        return self.collecting * self.warm_up + self.learning * (self.budget - self.warm_up)

    def until(self, env_steps: int) -> MeasuredCost:
        """Return the cost of a trial that is stopped there."""
        before = min(env_steps, self.warm_up)
        training = self.collecting * before + self.learning * (env_steps - before)
        share = env_steps / self.budget
        return training + (self.evaluations + self.longest) * (0.5 * share)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        """Read what `dataclasses.asdict` wrote."""
        costs = {
            name: MeasuredCost(**value) for name, value in data.items() if isinstance(value, dict)
        }
        return cls(**{**data, **costs})


class CostMeter:
    """A process that measures.

    Attributes:
        start_up: what its start cost; a worker's costs as much

    Raises:
        UserError: the process ended, or a configuration could not be measured.
    """

    def __init__(self, spec: SearchSpec) -> None:
        threads = str(max(1, int(spec.cpus_per_trial)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rltune.planning.measure"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": threads},  # as Ray sets it
        )
        started = time.perf_counter()
        try:
            answer = self._ask({"spec": spec.to_dict()})
        except BaseException:
            self.close()
            raise
        self.start_up = MeasuredCost(time.perf_counter() - started, answer["cpu"])

    def measure(self, config: Mapping[str, Any], seconds: float) -> Measurement:
        """Train a configuration for about so many seconds."""
        answer = self._ask({"config": dict(config), "seconds": seconds})
        if "error" in answer:
            raise UserError(answer["error"])
        return Measurement.from_dict(answer)

    def libraries(self) -> str:
        """Return which numerical library is the faster one there, and at what."""
        return str(self._ask({"libraries": True})["libraries"])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        pipes = self._process
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        try:
            pipes.stdin.write(json.dumps(question) + "\n")
            pipes.stdin.flush()
            line = pipes.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise UserError("the process that measures was killed; is there enough memory?")
        answer: dict[str, Any] = json.loads(line)
        return answer


def measure(spec: SearchSpec, config: Mapping[str, Any], seconds: float) -> Measurement:
    """Train a configuration for about so many seconds, and foresee the rest of its trial."""
    warm_up = min(int(config.get("learning_starts") or 0), spec.budget)
    with contextlib.closing(_Run(spec, config)) as run:
        ends = time.perf_counter() + seconds
        run.train(warm_up, ends - (1 - WARM_UP_SHARE) * seconds)
        collecting = run.rate(0, warm_up)
        if run.env_steps >= warm_up:
            run.train(spec.budget, ends)
            return run.measurement(collecting, warm_up, seconds)
    with contextlib.closing(_Run(spec, {**config, "learning_starts": SHORT_WARM_UP})) as run:
        run.train(SHORT_WARM_UP, math.inf)
        run.train(spec.budget, ends)
        return run.measurement(collecting, warm_up, seconds)


class _Run:
    """A trial that is trained and evaluated as a worker does it, and stopped early."""

    def __init__(self, spec: SearchSpec, config: Mapping[str, Any]) -> None:
        from rltune.agents.loop.controls import Controls
        from rltune.backends.registry import make_trainer

        self.spec = spec
        # Of any length: the price is that of the whole budget.
        parts = split(config, spec.env_kwargs, spec.budget)
        self.env_kwargs = parts.env_kwargs
        self.config = parts.config
        self.agent: Trainer = make_trainer(
            spec.agent,
            spec.env,
            parts.config,
            total_timesteps=spec.budget,
            seed=spec.tune_seed,
            device=spec.device,
            controls=Controls(**spec.controls),
            env_kwargs=parts.env_kwargs,
            engine=spec.engine,
        )
        every = getattr(getattr(self.agent, "algorithm", None), "update_every", SLICE)
        self.slice = max(int(every), SLICE)
        self.slices: list[
            tuple[int, int, MeasuredCost]
        ] = []  # env steps before and after, and the cost
        # The longest episode, how many there were, and the cost.
        self.evaluations: list[tuple[int, int, MeasuredCost]] = []
        self.plan = evaluation_plan(spec, spec.budget, spec.seed_plan(rungs_of(spec)).stops, {})

    @property
    def env_steps(self) -> int:
        return self.agent.env_steps

    def close(self) -> None:
        self.agent.close()

    def train(self, until: int, ends: float) -> None:
        """Train and evaluate until there are so many env steps, or the time is up; once at least.

        A slice is never cut: half an update has no price.
        """
        is_first = True
        while self.env_steps < until and (is_first or time.perf_counter() < ends):
            is_first = False
            before = self.env_steps
            points = [point for point in self.spec.evaluate_at if point > before]
            point = min([before + self.slice, until, *points[:1]])
            with _watch(self.agent) as spent:
                chunk = self.agent.learn(point)
            self.slices.append((before, self.env_steps, spent[0]))
            if chunk.stop_reason or chunk.diverged:
                return
            if points and self.env_steps >= points[0]:
                self._evaluate(None, self._episodes(points[:1])[0])

    def rate(self, first: int, last: int) -> MeasuredCost:
        """Return the cost of an env step between two points; nothing if none was done there."""
        slices = [part for part in self.slices if first <= part[0] < last]
        if len(slices) > 3:
            slices = slices[1:]  # the very first steps take longer
        total = MeasuredCost()
        for _, _, cost in slices:
            total += cost
        return total * (1 / max(1, sum(end - begin for begin, end, _ in slices)))

    def measurement(self, collecting: MeasuredCost, warm_up: int, seconds: float) -> Measurement:
        """Foresee the whole budget: a price per env step of the warm-up, and of the rest."""
        spec, done = self.spec, self.env_steps
        own_warm_up = min(int(self.config.get("learning_starts") or 0), spec.budget)
        is_whole = own_warm_up == warm_up and done >= spec.budget
        learning = self.rate(own_warm_up, spec.budget)
        if not self.evaluations:
            self._evaluate_briefly(seconds * EVALUATION_SHARE)
        length, episodes, last = self.evaluations[-1]
        growth = min(MAX_GROWTH, max(1.0, self._longest_episode() / length))
        known = [cost for _, _, cost in self.evaluations][: len(spec.evaluate_at)]
        to_come = sum(self._episodes(spec.evaluate_at[len(known) :])) / episodes
        so_far = sum(known, MeasuredCost())
        return Measurement(
            budget=spec.budget,
            warm_up=warm_up,
            collecting=collecting,
            learning=learning,
            evaluations=so_far + last * to_come,
            longest=so_far + last * (growth * to_come),
            memory=peak_memory()
            + int(getattr(self.agent, "memory_elsewhere", 0))
            + self._replay(until=spec.budget)
            - self._replay(until=done),
            env_steps=done,
            is_whole=is_whole,
            checkpoint=self._checkpoint(),
            replay=self._replay(until=spec.budget),
        )

    def _episodes(self, points: Sequence[int]) -> list[int]:
        """Return the episodes that evaluations at these points will have, if nothing is clear."""
        if self.plan is None:
            return [self.spec.eval_episodes] * len(points)
        length = self.evaluations[-1][0] if self.evaluations else None
        spent = sum(longest * n for longest, n, _ in self.evaluations)
        found = []
        for point in points:
            found.append(self.plan.most(point, spent, length))
            spent += found[-1] * (length or 0)
        return found

    def _evaluate(self, max_steps: int | None, episodes: int) -> None:
        with _watch(self.agent) as spent:
            lengths = self.agent.evaluate(episodes, max_steps=max_steps).lengths
        self.evaluations.append((max(1, *lengths), episodes, spent[0]))

    def _evaluate_briefly(self, seconds: float) -> None:
        """Evaluate with longer and longer episodes, as far as there is time; keep the last."""
        cut = FIRST_CUT
        while True:
            self._evaluate(cut, self.spec.eval_episodes)
            length, _, cost = self.evaluations[-1]
            if length < cut or 4 * cost.wall > seconds or cut >= self._longest_episode():
                break
            cut *= 4
        self.evaluations = self.evaluations[-1:]

    def _longest_episode(self) -> int:
        from rltune.agents.envs.vector import LONGEST_EPISODE, make_env

        longest = 0
        for name in environments(self.spec.env):
            env = make_env(name, env_kwargs=self.env_kwargs)
            env.close()  # type: ignore[no-untyped-call]
            longest += (env.spec and env.spec.max_episode_steps) or LONGEST_EPISODE
        return longest

    def _checkpoint(self) -> int:
        """Return the bytes of a checkpoint without the replay memory."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "checkpoint.pt"
            self.agent.save(file, memory=False)
            return file.stat().st_size

    def _replay(self, until: int) -> int:
        """Return the bytes of the replay memory that are filled after so many env steps."""
        size = int(self.config.get("buffer_size") or 0)
        memory = getattr(self.agent, "memory", None)
        if not size or memory is None:
            return 0
        return int(getattr(memory, "nbytes", 0) * min(until, size) / size)  # 0: a user's own memory


@contextlib.contextmanager
def _watch(agent: Trainer) -> Iterator[list[MeasuredCost]]:
    """Yield a list that holds the cost of the block when it has ended, that of actors included."""

    def now() -> MeasuredCost:
        elsewhere = float(getattr(agent, "cpu_elsewhere", 0.0))
        return MeasuredCost(time.perf_counter(), time.process_time() + elsewhere)

    spent: list[MeasuredCost] = []
    begun = now()
    yield spent
    spent.append(now() - begun)


def main() -> int:
    """Answer questions until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # environments print what they like
    from rltune.execution.messages import Task  # noqa: F401  (a worker has imported Ray, too)
    from rltune.runs.search_spec import SearchSpec

    spec = None
    for line in sys.stdin:
        question = json.loads(line)
        answer: dict[str, Any]
        if spec is None:
            spec = SearchSpec.from_dict(question["spec"])
            sys.path.insert(0, spec.import_path)
            with contextlib.suppress(UserError):  # an agent may need data that its defaults lack
                _Run(spec, {}).close()
            answer = {"cpu": time.process_time()}
        elif question.get("libraries"):
            from rltune.agents.machine.libraries import measure_speeds

            answer = {"libraries": measure_speeds().describe()}
        else:
            try:
                measured = measure(spec, question["config"], question["seconds"])
                answer = dataclasses.asdict(measured)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
