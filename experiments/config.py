"""Configuration groups method, stream and backbone, made from the signatures they configure.

A new strategy or stream therefore needs no configuration file: its keywords are its keys.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import types
import typing
from dataclasses import dataclass, field
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.identity import BATCH_ORDERS, answers_by_batch
from experiments.target import with_target
from tosca_avalanche.benchmarks import find_stream, stream_names
from tosca_avalanche.strategies import FrozenBackboneStrategy, find_strategy, strategy_names

# set by the run itself, not by a method's or a stream's keys
_NOT_METHOD_KEYS = {
    "self", "model", "optimizer", "scheduler", "criterion", "device", "plugins", "evaluator",
    "eval_every", "peval_mode", "seed", "store", "cache",
}  # fmt: skip
_ROUTED = "gaussian-ridge"  # the selection that has a projection
_NOT_STREAM_KEYS = {"transforms", "class_order_seed"}


@dataclass
class BackboneConfig:
    """Arguments of ``load_backbone``."""

    name: str = "tiny_vit_64"
    weights: str | None = None
    transform: str | None = None
    precision: str = "float32"


@dataclass
class RunConfig:
    """One run: a method on a stream with a backbone, at one seed."""

    method: Any = MISSING
    stream: Any = MISSING
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    seed: int = 1993
    """Seed of training; also of the class order, unless that has its own."""
    class_order_seed: Any = None
    """A number; "sorted" keeps the order of the class ids; null takes ``seed``."""
    eval_order: str = "class-sorted"
    """Order of the test images for batch protocols: class-sorted or shuffled."""
    results_root: str = "results"
    overwrite: bool = False
    store: str | None = "default"
    """Folder of the feature store; null keeps features in memory."""
    cache: bool = True
    feature_dtype: str = "float32"
    """Of the stored features: float32 or float16."""
    device: str = "cpu"
    num_workers: int = 0
    defaults: list[Any] = field(
        default_factory=lambda: [
            {"method": "tosca"},
            {"stream": "digits"},
            {"backbone": "tiny_vit_64"},
            "_self_",
            {"override hydra/job_logging": "none"},
            {"override hydra/hydra_logging": "none"},
        ]
    )
    hydra: Any = field(
        default_factory=lambda: {
            "run": {"dir": "."},
            "sweep": {"dir": ".", "subdir": "."},
            "output_subdir": None,
        }
    )


def register_configs() -> None:
    """Put the root and all groups into Hydra's store."""
    store = ConfigStore.instance()
    store.store(name="run", node=RunConfig)
    for name in strategy_names():
        store.store(group="method", name=name, node=method_schema(name))
    for name in stream_names():
        store.store(group="stream", name=name, node=stream_schema(name))
    store.store(group="backbone", name="tiny_vit_64", node=BackboneConfig)
    store.store(group="backbone", name="timm", node=BackboneConfig(name=MISSING))


@functools.cache
def method_schema(name: str) -> type:
    """Return a dataclass of the settings of a strategy, with its defaults."""
    fields: list[tuple[str, Any, Any]] = []
    left_out = _NOT_METHOD_KEYS | {*find_strategy(name).fixed_keys}
    for cls in find_strategy(name).__mro__:  # a subclass's default goes before its parents'
        if "__init__" in vars(cls):
            fields += _fields(cls.__init__, left_out | {f[0] for f in fields})
        if cls is FrozenBackboneStrategy:
            break
    return _schema(name, "method", fields)


@functools.cache
def stream_schema(name: str) -> type:
    """Return a dataclass of the settings of a stream, with its defaults."""
    return _schema(name, "stream", _fields(find_stream(name), _NOT_STREAM_KEYS))


def _schema(name: str, group: str, fields: list[tuple[str, Any, Any]]) -> type:
    label = typing.Optional[str]  # noqa: UP045
    head = [("name", str, field(default=name)), ("label", label, field(default=None))]
    return dataclasses.make_dataclass(f"{name}_{group}", [*head, *fields])


def _fields(function: Any, leave_out: set[str]) -> list[tuple[str, Any, Any]]:
    function = inspect.unwrap(function)
    hints = typing.get_type_hints(function)
    return [
        (key, _plain(hints.get(key, Any)), field(**_default(p)))
        for key, p in inspect.signature(function).parameters.items()
        if key not in leave_out and p.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def _default(parameter: inspect.Parameter) -> dict[str, Any]:
    value = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
    if isinstance(value, dict):
        return {"default_factory": functools.partial(dict, value)}
    return {"default": value}


def _plain(hint: Any) -> Any:
    """Turn a type hint into one that OmegaConf checks; Any where it knows none."""
    if hint in (int, float, str, bool):
        return hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(inner) == 1 and inner[0] in (int, float, str, bool):
            return typing.Optional[inner[0]]  # noqa: UP045
    return Any


def to_settings(config: DictConfig) -> dict[str, Any]:
    """Check a composed configuration against its schema and return it as plain values.

    :raises ValueError: an unknown key (Hydra's ``+key`` gets this far), a bad type, a value that
        has to be given, or one that has no effect beside the others.
    """
    schema = RunConfig(
        method=method_schema(config.method.name)(), stream=stream_schema(config.stream.name)()
    )
    # as plain values: the schema of another process is not this one's
    plain = OmegaConf.to_container(config)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema), plain)
    except OmegaConfBaseException as error:
        raise ValueError(f"configuration: {str(error).splitlines()[0]}") from error
    missing = OmegaConf.missing_keys(merged)
    if missing:
        first = sorted(missing)[0]
        raise ValueError(f"{first} has no default: pass it, as in {first}=VALUE")
    settings = OmegaConf.to_container(merged, resolve=True)
    assert isinstance(settings, dict)
    del settings["defaults"], settings["hydra"]
    _check_use(settings)  # type: ignore[arg-type]
    return settings  # type: ignore[return-value]


def _check_use(settings: dict[str, Any]) -> None:
    """Refuse what is not the default and has no effect: it would make the run another one."""
    method, order = settings["method"], settings["eval_order"]
    if order not in BATCH_ORDERS:
        raise ValueError(f"eval_order={order!r}; choose one of {[*BATCH_ORDERS]}")
    if order != RunConfig.eval_order and not answers_by_batch(method):
        ways = {"selection": "entropy-batch", "batchwise": "true"}
        usable = [f"method.{k}={v}" for k, v in ways.items() if k in method]
        raise ValueError(
            f"eval_order={order} has no effect: {method['name']} answers each image by itself here"
            f"; leave it out{''.join(f', or pass {way}' for way in usable)}"
        )
    if method.get("selection", _ROUTED) == _ROUTED:
        return
    for f in dataclasses.fields(method_schema(method["name"])):
        if f.name in ("projection", "ridge_weight") and method[f.name] != f.default:
            raise ValueError(
                f"method.{f.name}={method[f.name]} has no effect with method.selection="
                f"{method['selection']}; leave it out, or pass method.selection={_ROUTED}"
            )


def compose(overrides: list[str]) -> DictConfig:
    """Return the configuration of some overrides, as the command line would.

    :raises ValueError: an unknown method, stream or key, with the nearest known one.
    """
    overrides = with_target(overrides)
    chosen = [o for o in overrides if o.partition("=")[0] in ("method", "stream", "backbone")]
    for override in chosen:
        group, _, names = override.partition("=")
        for name in names.split(","):
            if group == "method":
                find_strategy(name)
            elif group == "stream":
                find_stream(name)
    try:
        with hydra.initialize(config_path=None, version_base="1.3"):
            first = hydra.compose("run", [o.partition(",")[0] for o in chosen])
            _check_keys(first, overrides)
            return hydra.compose("run", [o for o in overrides if not o.startswith("-")])
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(f"configuration: {error}") from error


def _check_keys(config: DictConfig, overrides: list[str]) -> None:
    """Refuse an override whose key does not exist, and name the nearest that does."""
    known = {*_flat(OmegaConf.to_container(config)), "method", "stream", "backbone"}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~").partition("@")[0]
        if "=" not in override or key.startswith(("hydra", "stream.args.")) or key in known:
            continue
        near = max(sorted(known), key=functools.partial(_nearness, key))
        hint = f"did you mean {near!r}? " if _nearness(key, near) > 0.5 else ""
        raise ValueError(f"unknown key {key!r}: {hint}`--cfg job` lists all keys")


def _nearness(key: str, known: str) -> float:
    """Tell how near a key is to a known one, whole or by one word of its; 1 is equal."""
    (group, _, leaf), (known_group, _, known_leaf) = key.rpartition("."), known.rpartition(".")
    whole, *words = (
        difflib.SequenceMatcher(None, leaf, word).ratio()
        for word in (known_leaf, *known_leaf.split("_"))
    )
    near = max(whole, 0.9 * max(words))
    return near if group == known_group else 0.8 * near


def _flat(value: Any, key: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [key]
    return [key] * bool(key) + [
        flat for k, v in value.items() for flat in _flat(v, f"{key}.{k}" if key else k)
    ]
