"""The folder of one run: finished results, or a state to resume from, never something between."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tosca_avalanche.errors import RecordError
from tosca_avalanche.files import (
    atomic_write,
    file_sha256,
    read_json,
    seal_is_broken,
    sealed,
    write_json,
)
from tosca_avalanche.records.rows import COLUMNS

_AGAIN = "delete its folder and run again"


class RunFolder:
    """``ROOT/STREAM/METHOD/PROTOCOL/seed-N`` and, while it runs, ``seed-N.partial`` beside it.

    Results appear under the final name by one rename, when all files are complete.

    :param path: the final folder.
    :param settings: the full configuration; results of other settings are never mixed in.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any]) -> None:
        self.path = Path(path)
        self.settings = json.loads(json.dumps(settings))
        self.partial = self.path.with_name(self.path.name + ".partial")

    @property
    def lock(self) -> Path:
        """File to lock while working on this run."""
        return self.path.with_name(f".{self.path.name}.lock")

    def finished(self) -> bool:
        """Tell whether results of these very settings are there.

        :raises RecordError: results of other settings are there, with what differs.
        """
        if not self.path.is_dir():
            return False
        found = _unbroken(self.path / "run.json").get("configuration")
        differing = differences(found, self.settings)
        if differing:
            raise RecordError(
                f"{self.path} holds results of other settings: {'; '.join(differing[:5])}. Choose "
                f"another results_root or label, or pass overwrite=true to replace them"
            )
        return True

    def save_state(self, done: int, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Keep the state after ``done`` tasks; the earlier state stays until this one is whole."""
        name = f"state-{done}.safetensors"
        atomic_write(self.partial / name, lambda p: save_file(tensors, str(p)))
        digest = file_sha256(self.partial / name)
        state = {"settings": self.settings, "done": done, "tensors": name, "sha256": digest}
        write_json(self.partial / "state.json", sealed({**state, "rest": rest}))
        for old in self.partial.glob("state-*.safetensors"):
            if old.name != name:
                old.unlink()

    def load_state(self) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
        """Return (tasks done, tensors, rest) of an interrupted run of these settings, if any.

        :raises RecordError: an interrupted run of other settings is there, with what differs, or
            a damaged file.
        """
        path = self.partial / "state.json"
        if not path.is_file():
            return None
        state = _unbroken(path)
        missing = [k for k in ("settings", "done", "tensors", "rest") if k not in state]
        if missing:
            raise RecordError(f"{path} is damaged: it has no {missing[0]!r}; {_AGAIN}")
        differing = differences(state["settings"], self.settings)
        if differing:
            raise RecordError(
                f"{self.partial} holds an interrupted run of other settings, {state['done']} tasks "
                f"done: {'; '.join(differing[:5])}. Choose another results_root or label, or pass "
                f"overwrite=true to give it up"
            )
        tensors = self.partial / Path(str(state["tensors"])).name
        try:
            found = file_sha256(tensors)
            if state.get("sha256", found) == found:
                return state["done"], load_file(tensors), state["rest"]
        except (OSError, SafetensorError) as error:
            raise RecordError(f"{tensors} can't be read ({error}); {_AGAIN}") from error
        raise RecordError(f"{tensors} is damaged: its SHA-256 is another; {_AGAIN}")

    def finish(
        self, record: dict[str, Any], rows: list[dict[str, Any]], tables: dict[str, pd.DataFrame]
    ) -> None:
        """Write ``run.json``, ``metrics.csv`` and the tables, then give the folder its name."""
        staging = self.partial / "finished"
        shutil.rmtree(staging, ignore_errors=True)
        frame = pd.DataFrame(rows).reindex(columns=COLUMNS).astype({"eval_task": "Int64"})
        for name, table in {"metrics.csv": frame, **tables}.items():
            atomic_write(staging / name, lambda p, t=table: t.to_csv(p, index=False))  # type: ignore[misc]
        sums = {p.name: _table_sha256(p) for p in sorted(staging.glob("*.csv"))}
        whole = {**record, "configuration": self.settings, "tables": sums}
        write_json(staging / "run.json", sealed(whole))
        if self.path.is_dir():
            replaced = self.partial / "replaced"
            shutil.rmtree(replaced, ignore_errors=True)
            os.replace(self.path, replaced)
        os.replace(staging, self.path)
        shutil.rmtree(self.partial)

    def discard_other(self) -> None:
        """Forget an interrupted run of other settings; keep one of these."""
        try:
            self.load_state()
        except RecordError:  # or damaged: of no more use
            self.discard()

    def discard(self) -> None:
        """Forget an interrupted run."""
        shutil.rmtree(self.partial, ignore_errors=True)


def read_metrics(path: str | Path) -> pd.DataFrame:
    """Read a ``metrics.csv``; blank values are NaN in the frame, n = 0 tells undefined ones.

    :raises RecordError: see :func:`read_table`.
    """
    return read_table(path, {**dict.fromkeys(COLUMNS), "eval_task": "Int64", "run_id": "str"})


def has_table(path: str | Path) -> bool:
    """Tell whether a run has a table: its file, or a ``run.json`` beside it that knows of one."""
    return Path(path).is_file() or _sum_of(Path(path)) is not None


def read_table(path: str | Path, columns: Mapping[str, str | None]) -> pd.DataFrame:
    """Read a CSV that :meth:`RunFolder.finish` wrote.

    :param columns: those that it must have, each with its dtype or None.
    :raises RecordError: no such table, or not the one that the ``run.json`` beside it knows.
    """
    path = Path(path)
    known = _sum_of(path)
    try:
        if known is not None and _table_sha256(path) != known:
            raise RecordError(
                f"{path} is damaged or was changed: its SHA-256 is not the one that run.json "
                f"gives; put it back, or {_AGAIN}"
            )
        frame = pd.read_csv(path, dtype={c: t for c, t in columns.items() if t})
    except (OSError, ValueError, OverflowError) as error:
        raise RecordError(f"{path} can't be read as a table: {error}; {_AGAIN}") from error
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise RecordError(f"{path} has no column {missing[0]!r}; it is no table of a run")
    return frame


def _sum_of(table: Path) -> str | None:
    """Return the SHA-256 that ``run.json`` gives a table; None where it knows none."""
    record = table.with_name("run.json")
    sums = _unbroken(record).get("tables", {}) if record.is_file() else {}
    return sums.get(table.name) if isinstance(sums, dict) else None


def _unbroken(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if seal_is_broken(value):
        raise RecordError(
            f"{path} is damaged or was changed: its checksum does not fit; put it back, or {_AGAIN}"
        )
    return value


def _table_sha256(path: Path) -> str:
    # git may turn line ends over
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def differences(found: Any, wanted: dict[str, Any]) -> list[str]:
    """Return which settings differ, of those that both have.

    A key that only one of them has came or went with a version of this package, whose new
    keys default to what was done before: results stay those of the same settings.
    """
    if not isinstance(found, dict):
        return [f"the configuration is {found!r} there"]
    out = []
    for key in sorted(found.keys() & wanted.keys()):
        old, new = found[key], wanted[key]
        if isinstance(old, dict) and isinstance(new, dict):  # a group: method, stream, backbone
            both = sorted(old.keys() & new.keys())
            out += [
                f"{key}.{k} is {old[k]!r} there, {new[k]!r} here" for k in both if old[k] != new[k]
            ]
        elif old != new:
            out.append(f"{key} is {old!r} there, {new!r} here")
    return out
