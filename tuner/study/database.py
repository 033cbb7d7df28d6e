"""The study's file: an Optuna study in SQLite, written with few statements.

Optuna opens, checks and reads the file. Its own way of writing looks up the trial, and the history
of every parameter, before each value: 40 ms for a new trial with twelve parameters. Here the rows
of a step are written by Optuna's table models in one transaction: a trial is there with all that it
needs, or not at all. One process writes, so what it has read and written is all there is.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy.exc
from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from rltune.agents.errors import StorageError
from rltune.study.stored_parameters import StoredParameters
from sqlalchemy import delete, insert
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.orm import Session

STUDY_NAME = "search"

_FINITE = models.TrialValueModel.TrialValueType.FINITE
_FINITE_STEP = models.TrialIntermediateValueModel.TrialIntermediateValueType.FINITE


class Database:
    """The trials of a study, in memory and on disk.

    Args:
        path: of the file, created when it isn't there
        directions: of a new study, one an objective
        stored: how the file has the parameters

    Raises:
        StorageError: from here and every write: the file is no study, or cannot be written.
    """

    def __init__(
        self, path: Path, directions: Sequence[StudyDirection], stored: StoredParameters
    ) -> None:
        self.path = path
        self._stored = stored
        with self._errors("cannot be opened as an Optuna study"):
            # The URL only names the dialect; as part of it, the path would have to be quoted.
            self._storage = RDBStorage(
                "sqlite:///study.db", engine_kwargs={"creator": self._connect}
            )
            self.study = optuna.create_study(
                storage=self._storage,
                study_name=STUDY_NAME,
                directions=directions,
                load_if_exists=True,
            )
            self._study_id = self._storage.get_study_id_from_name(STUDY_NAME)
            self.trials = [
                stored.from_file(trial) for trial in self.study.get_trials(deepcopy=False)
            ]

    def add(self, trial: FrozenTrial) -> FrozenTrial:
        """Append a trial (see `optuna.trial.create_trial`) and give it its number."""
        trial.number = len(self.trials)
        with self._transaction() as session:
            row: Any = models.TrialModel(
                study_id=self._study_id, number=trial.number, state=trial.state
            )
            row.datetime_start = trial.datetime_start
            session.add(row)
            session.flush()
            trial._trial_id = row.trial_id
            _insert(
                session,
                models.TrialParamModel,
                [
                    {
                        "trial_id": row.trial_id,
                        "param_name": name,
                        "param_value": distribution.to_internal_repr(value),
                        "distribution_json": distribution_to_json(distribution),
                    }
                    for name, value, distribution in self._stored.to_file(trial)
                ],
            )
            for model, attrs in (
                (models.TrialUserAttributeModel, trial.user_attrs),
                (models.TrialSystemAttributeModel, trial.system_attrs),
            ):
                _insert(
                    session,
                    model,
                    [
                        {"trial_id": row.trial_id, "key": key, "value_json": json.dumps(value)}
                        for key, value in attrs.items()
                    ],
                )
        self.trials.append(trial)
        return trial

    def start(self, trial: FrozenTrial) -> None:
        """Make a waiting trial a running one."""
        now = datetime.now()
        with self._transaction() as session:
            row: Any = session.get(models.TrialModel, trial._trial_id)
            row.state, row.datetime_start = TrialState.RUNNING, now
        trial.state, trial.datetime_start = TrialState.RUNNING, now

    def report(self, trial: FrozenTrial, step: int, value: float) -> None:
        """Keep an intermediate value; it replaces an earlier one of the same step."""
        with self._transaction() as session:
            _report(session, trial, step, value)
        trial.intermediate_values[step] = value

    def set_attrs(self, news: Sequence[tuple[FrozenTrial, Mapping[str, Any]]]) -> None:
        """Set user attributes of trials, of all or of none."""
        with self._transaction() as session:
            for trial, attrs in news:
                _set_attrs(session, trial, attrs)
        for trial, attrs in news:
            trial.user_attrs.update(attrs)

    def finish(
        self,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
        attrs: Mapping[str, Any],
        report: tuple[int, float] | None = None,
    ) -> None:
        """End a running trial, with its values, user attributes and last intermediate value."""
        now = datetime.now()
        with self._transaction() as session:
            if report is not None:
                _report(session, trial, *report)
            row: Any = session.get(models.TrialModel, trial._trial_id)
            row.state, row.datetime_complete = state, now
            _set_attrs(session, trial, attrs)
            about = {"trial_id": trial._trial_id, "value_type": _FINITE}
            rows = [{**about, "objective": i, "value": v} for i, v in enumerate(values or ())]
            _insert(session, models.TrialValueModel, rows)
        trial.state, trial.datetime_complete = state, now
        trial.user_attrs.update(attrs)
        trial.values = values
        if report is not None:
            trial.intermediate_values[report[0]] = report[1]

    def reopen(self, trial: FrozenTrial, attrs: Mapping[str, Any]) -> None:
        """Make an ended trial a running one again, without a value."""
        with self._transaction() as session:
            row: Any = session.get(models.TrialModel, trial._trial_id)
            row.state, row.datetime_complete = TrialState.RUNNING, None
            _set_attrs(session, trial, attrs)
            session.execute(
                delete(models.TrialValueModel).where(
                    models.TrialValueModel.trial_id == trial._trial_id
                )
            )
        trial.state, trial.datetime_complete = TrialState.RUNNING, None
        trial.user_attrs.update(attrs)
        trial.values = None

    def set_study_attr(self, key: str, value: Any) -> None:
        """Set a user attribute of the study."""
        with self._errors("cannot be written"):
            self.study.set_user_attr(key, value)

    def close(self) -> None:
        """Close the file; what was written is durable without it."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, check_same_thread=False)
        # A commit outlives the process, and readers never wait. Without a sync on every commit a
        # power cut may take the last ones, but never the file.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Session]:
        with (
            self._errors("cannot be written"),
            Session(self._storage.engine) as session,
            session.begin(),
        ):
            yield session

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (
            sqlite3.Error,
            sqlalchemy.exc.SQLAlchemyError,
            optuna.exceptions.StorageInternalError,
            RuntimeError,  # Optuna: the tables are of another version
        ) as error:
            cause = error.__cause__ or error
            text = " ".join(str(getattr(cause, "orig", cause)).split())
            raise StorageError(f"{self.path}: {what}: {text}.") from error


def copy_study(path: Path, target: Path) -> None:
    """Copy the file, whole, while its search may be writing to it."""
    with (
        contextlib.closing(sqlite3.connect(path)) as old,
        contextlib.closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)


def read_study(path: Path) -> list[FrozenTrial]:
    """Return the trials of a study, of a copy of it: nothing is written beside the file."""
    with tempfile.TemporaryDirectory(prefix="rltune-") as folder:
        copied = Path(folder) / "study.db"
        copy_study(path, copied)
        storage = RDBStorage(f"sqlite:///{copied}")
        study = optuna.load_study(study_name=STUDY_NAME, storage=storage)
        trials = study.get_trials(deepcopy=False)
        storage.remove_session()
        storage.engine.dispose()
    return trials


def _insert(session: Session, model: Any, rows: list[dict[str, Any]]) -> None:
    if rows:
        session.execute(insert(model), rows)


def _report(session: Session, trial: FrozenTrial, step: int, value: float) -> None:
    row = {"intermediate_value": value, "intermediate_value_type": _FINITE_STEP}
    session.execute(
        upsert(models.TrialIntermediateValueModel)
        .values(trial_id=trial._trial_id, step=step, **row)
        .on_conflict_do_update(index_elements=["trial_id", "step"], set_=row)
    )


def _set_attrs(session: Session, trial: FrozenTrial, attrs: Mapping[str, Any]) -> None:
    for key, value in attrs.items():
        text = json.dumps(value)
        session.execute(
            upsert(models.TrialUserAttributeModel)
            .values(trial_id=trial._trial_id, key=key, value_json=text)
            .on_conflict_do_update(index_elements=["trial_id", "key"], set_={"value_json": text})
        )
