"""The study's file: an Optuna study in SQLite, written with few statements.

Optuna opens, checks and reads the file. Its own way of writing looks up the trial, and the history
of every parameter, before each value: 40 ms for a new trial with twelve parameters. Here the rows
of a step are written in one transaction: a trial is there with all that it needs, or not at all.
The statements are made of Optuna's table models, once, and go to SQLite as text, by a connection of
their own. One process writes, so what it has read and written is all there is.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
import threading
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
from sqlalchemy import inspect

STUDY_NAME = "search"

_FINITE = models.TrialValueModel.TrialValueType.FINITE.name
_FINITE_STEP = models.TrialIntermediateValueModel.TrialIntermediateValueType.FINITE.name


def _insert(model: Any, *columns: str, key: tuple[str, ...] = ()) -> str:
    """Return the statement that writes a row; with a key, it replaces the row that has it."""
    table = model.__tablename__
    statement = (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    )
    news = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
    return f"{statement} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {news}" if key else statement


_TRIALS = models.TrialModel.__tablename__
ADD_TRIAL = _insert(models.TrialModel, "study_id", "number", "state", "datetime_start")
SET_STATE = f"UPDATE {_TRIALS} SET state = ?, {{moment}} = ? WHERE trial_id = ?"
_ABOUT = ("trial_id", "key", "value_json")
ADD_PARAMETER = _insert(
    models.TrialParamModel, "trial_id", "param_name", "param_value", "distribution_json"
)
ADD_USER_ATTR = _insert(models.TrialUserAttributeModel, *_ABOUT)
SET_USER_ATTR = _insert(models.TrialUserAttributeModel, *_ABOUT, key=_ABOUT[:2])
ADD_SYSTEM_ATTR = _insert(models.TrialSystemAttributeModel, *_ABOUT)
ADD_VALUE = _insert(models.TrialValueModel, "trial_id", "value_type", "objective", "value")
DELETE_VALUES = f"DELETE FROM {models.TrialValueModel.__tablename__} WHERE trial_id = ?"
SET_INTERMEDIATE = _insert(
    models.TrialIntermediateValueModel,
    *("trial_id", "step", "intermediate_value", "intermediate_value_type"),
    key=("trial_id", "step"),
)


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
        self._writing = threading.Lock()
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
            self._connection = self._connect()
            self.trials = [
                stored.from_file(trial) for trial in self.study.get_trials(deepcopy=False)
            ]

    def add(self, trial: FrozenTrial) -> FrozenTrial:
        """Append a trial (see `optuna.trial.create_trial`) and give it its number."""
        trial.number = len(self.trials)
        with self._transaction() as connection:
            about = (self._study_id, trial.number, trial.state.name)
            row = (*about, _moment("datetime_start", trial.datetime_start))
            of: Any = connection.execute(ADD_TRIAL, row).lastrowid
            trial._trial_id = of
            parameters = [
                (of, name, distribution.to_internal_repr(value), distribution_to_json(distribution))
                for name, value, distribution in self._stored.to_file(trial)
            ]
            _write(connection, ADD_PARAMETER, parameters)
            _write(connection, ADD_USER_ATTR, _attr_rows(of, trial.user_attrs))
            _write(connection, ADD_SYSTEM_ATTR, _attr_rows(of, trial.system_attrs))
        self.trials.append(trial)
        return trial

    def start(self, trial: FrozenTrial) -> None:
        """Make a waiting trial a running one."""
        now = datetime.now()
        with self._transaction() as connection:
            _set_state(connection, trial, TrialState.RUNNING, "datetime_start", now)
        trial.state, trial.datetime_start = TrialState.RUNNING, now

    def report(self, trial: FrozenTrial, step: int, value: float) -> None:
        """Keep an intermediate value; it replaces an earlier one of the same step."""
        with self._transaction() as connection:
            _report(connection, trial, step, value)
        trial.intermediate_values[step] = value

    def set_attrs(self, news: Sequence[tuple[FrozenTrial, Mapping[str, Any]]]) -> None:
        """Set user attributes of trials, of all or of none."""
        with self._transaction() as connection:
            for trial, attrs in news:
                _set_attrs(connection, trial, attrs)
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
        with self._transaction() as connection:
            if report is not None:
                _report(connection, trial, *report)
            _set_state(connection, trial, state, "datetime_complete", now)
            _set_attrs(connection, trial, attrs)
            rows = [(trial._trial_id, _FINITE, i, value) for i, value in enumerate(values or ())]
            _write(connection, ADD_VALUE, rows)
        trial.state, trial.datetime_complete = state, now
        trial.user_attrs.update(attrs)
        trial.values = values
        if report is not None:
            trial.intermediate_values[report[0]] = report[1]

    def reopen(self, trial: FrozenTrial, attrs: Mapping[str, Any]) -> None:
        """Make an ended trial a running one again, without a value."""
        with self._transaction() as connection:
            _set_state(connection, trial, TrialState.RUNNING, "datetime_complete", None)
            _set_attrs(connection, trial, attrs)
            _write(connection, DELETE_VALUES, [(trial._trial_id,)])
        trial.state, trial.datetime_complete = TrialState.RUNNING, None
        trial.user_attrs.update(attrs)
        trial.values = None

    def set_study_attr(self, key: str, value: Any) -> None:
        """Set a user attribute of the study."""
        with self._errors("cannot be written"):
            self.study.set_user_attr(key, value)

    def close(self) -> None:
        """Close the file; what was written is durable without it."""
        self._connection.close()
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
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors("cannot be written"), self._writing, self._connection:
            yield self._connection

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


def _write(connection: sqlite3.Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        connection.executemany(statement, rows)


def _set_state(
    connection: sqlite3.Connection,
    trial: FrozenTrial,
    state: TrialState,
    name: str,
    moment: datetime | None,
) -> None:
    row = (state.name, _moment(name, moment), trial._trial_id)
    _write(connection, SET_STATE.format(moment=name), [row])


def _moment(name: str, moment: datetime | None) -> str | None:
    """Return a moment as the column has it: some versions of Optuna keep UTC, some local time."""
    row: Any = models.TrialModel()
    setattr(row, name, moment)
    attrs = inspect(models.TrialModel).column_attrs
    stored = next(getattr(row, attr.key) for attr in attrs if attr.columns[0].name == name)
    return None if stored is None else f"{stored:%Y-%m-%d %H:%M:%S.%f}"


def _report(connection: sqlite3.Connection, trial: FrozenTrial, step: int, value: float) -> None:
    _write(connection, SET_INTERMEDIATE, [(trial._trial_id, step, value, _FINITE_STEP)])


def _set_attrs(
    connection: sqlite3.Connection, trial: FrozenTrial, attrs: Mapping[str, Any]
) -> None:
    _write(connection, SET_USER_ATTR, _attr_rows(trial._trial_id, attrs))


def _attr_rows(trial_id: int, attrs: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(trial_id, key, json.dumps(value)) for key, value in attrs.items()]
