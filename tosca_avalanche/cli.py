"""``tosca-avalanche fit | add | predict | show``: a classifier from folders of images."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tosca_avalanche.errors import ToscaError
from tosca_avalanche.version import __version__

# the parts that need torch are imported by the commands, so that --help and wrong usage are quick


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return 0, 1 after an error of ours, 2 for wrong usage, 130 after Ctrl-C."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _say_warning
        try:
            code = int(options.run(options) or 0)
            sys.stdout.flush()
            return code
        except argparse.ArgumentTypeError as error:
            print(f"tosca-avalanche {options.command}: error: {error}", file=sys.stderr)
            return 2
        except (ToscaError, ValueError, OSError) as error:
            if isinstance(error, BrokenPipeError):  # | head has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 0
            print(f"tosca-avalanche: error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("tosca-avalanche: interrupted; nothing was changed", file=sys.stderr)
            return 130


def fit(options: argparse.Namespace) -> None:
    """Learn a folder as the first task of a new model."""
    from tosca_avalanche.backbones import load_backbone
    from tosca_avalanche.errors import ModelError
    from tosca_avalanche.learner import ToscaClassifier
    from tosca_avalanche.learner.folder import MANIFEST
    from tosca_avalanche.modules.tosca_net import PRESETS
    from tosca_avalanche.selection import SELECTIONS

    if options.selection not in (None, *SELECTIONS) or options.selection == "oracle":
        rules = ", ".join(rule for rule in SELECTIONS if rule != "oracle")
        raise argparse.ArgumentTypeError(
            f"argument --selection: unknown rule {options.selection!r}; choose from {rules}"
        )
    if (options.out / MANIFEST).exists() and not options.overwrite:
        raise ModelError(f"{options.out} holds a model; add to it, or pass --overwrite")
    names = ("epochs", "batch_size", "lr", "selection", "seed", "device")
    own = {name: value for name in names if (value := getattr(options, name)) is not None}
    backbone = load_backbone(options.backbone, weights=options.weights)
    model = ToscaClassifier(backbone, **{**PRESETS[options.preset], **own})
    model.fit(options.folder)
    model.save(options.out, overwrite=options.overwrite)
    _say(f"learned {len(model.classes_)} classes; {options.out} is written")


def add(options: argparse.Namespace) -> None:
    """Learn a folder as one more task of a model."""
    from tosca_avalanche.learner import editing

    with editing(options.model):
        model = _load(options)
        before = len(model.classes_)
        model.add_task(options.folder)
        model.save(options.model)
    fresh, here = len(model.classes_) - before, len(model.task_labels[-1])
    again = f", {here - fresh} known ones again" if here > fresh else ""
    _say(
        f"learned {fresh} new classes{again}; {options.model} has {model.n_tasks} tasks and "
        f"{len(model.classes_)} classes"
    )


def predict(options: argparse.Namespace) -> int:
    """Print the label of each image; 1 where one can't be read, after the others."""
    from tosca_avalanche.images import images_below, read_image

    model = _load(options)
    paths: list[Path] = []
    for path in options.images:
        paths += images_below(path) if path.is_dir() else [path]
    good = []
    for path in paths:
        try:
            read_image(path)
            good.append(path)
        except ToscaError as error:
            print(f"tosca-avalanche: error: {error}", file=sys.stderr)
    if not paths:
        print("tosca-avalanche: error: there are no images", file=sys.stderr)
    labels = model.predict(good, options.abstain).tolist()
    surest = model.predict_proba(good).max(axis=1, initial=0).tolist()
    rows = [
        {"image": str(path), "label": label, "name": model.labels.name(label), "probability": p}
        for path, label, p in zip(good, labels, surest, strict=True)
    ]
    if options.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        _table([[r["image"], r["name"], f"{r['probability']:.3f}"] for r in rows])
    return 0 if paths and len(good) == len(paths) else 1


def show(options: argparse.Namespace) -> None:
    """Print what a model is and has learned; reads the manifest alone."""
    from tosca_avalanche.learner import read_manifest

    manifest, _ = read_manifest(options.model)
    if options.json:
        print(json.dumps(manifest, indent=1, ensure_ascii=False))
        return
    names = {entry["label"]: entry["name"] for entry in manifest["labels"]}
    backbone, settings, recipe = (manifest[key] for key in ("backbone", "settings", "recipe"))
    print(f"format     {manifest['format_version']}, written by {manifest['written_by']}")
    print(f"backbone   {backbone['name']}, fingerprint {backbone['fingerprint'][:12]}")
    print(f"selection  {settings['selection']}")
    print(f"training   seed {settings['seed']}, {', '.join(f'{k} {v}' for k, v in recipe.items())}")
    print(f"classes    {len(names)} in {len(manifest['tasks'])} tasks")
    for t, entry in enumerate(manifest["tasks"]):
        own = ", ".join(names[label] for label in entry["classes"])
        print(f"task {t:<5} {len(entry['classes'])}: {own}")


def _load(options: argparse.Namespace) -> Any:
    from tosca_avalanche.learner import ToscaClassifier

    device = options.device or "cpu"
    return ToscaClassifier.load(options.model, weights=options.weights, device=device)


def _table(rows: list[list[str]]) -> None:
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _say_warning(message: Any, *rest: Any, **more: Any) -> None:
    print(f"tosca-avalanche: warning: {message}", file=sys.stderr)


def _number(kind: Callable[[str], Any], least: float) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    parse.__name__ = "number"
    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tosca-avalanche",
        description="Learn to tell images apart, folder after folder, on a frozen vision "
        "transformer. Each class has a folder of its own: FOLDER/CLASS/IMAGE.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    folder = "a folder CLASS/IMAGE, one folder a class"
    one = _command(commands, "fit", fit)
    one.add_argument("folder", type=Path, metavar="FOLDER", help=folder)
    one.add_argument("--out", type=Path, required=True, metavar="MODEL", help="folder to write")
    one.add_argument("--backbone", default="tiny_vit_64", help="default %(default)s")
    one.add_argument("--overwrite", action="store_true", help="replace the model that is there")
    one.add_argument(
        "--preset", default="paper", choices=("paper", "routed"), help="settings, default paper"
    )
    one.add_argument("--epochs", type=_number(int, 0), help="passes over the images of a task")
    one.add_argument("--batch-size", type=_number(int, 1), help="images per step")
    one.add_argument("--lr", type=_number(float, 0), help="learning rate")
    one.add_argument("--seed", type=_number(int, 0), help="of initial values and order")
    one.add_argument("--selection", metavar="RULE", help="how the module is chosen")
    one = _command(commands, "add", add)
    one.add_argument("model", type=Path, metavar="MODEL")
    one.add_argument("folder", type=Path, metavar="FOLDER", help=folder)
    one = _command(commands, "predict", predict)
    one.add_argument("model", type=Path, metavar="MODEL")
    one.add_argument("images", type=Path, nargs="+", metavar="IMAGE", help="files or folders")
    one.add_argument(
        "--abstain", type=_number(float, 0), metavar="H", help="say unknown above this entropy, 0-1"
    )
    one.add_argument("--json", action="store_true", help="JSON instead of a table")
    one = _command(commands, "show", show)
    one.add_argument("model", type=Path, metavar="MODEL")
    one.add_argument("--json", action="store_true", help="JSON instead of a table")
    return parser


def _command(commands: Any, name: str, run: Callable[..., Any]) -> argparse.ArgumentParser:
    says = (run.__doc__ or "").partition(";")[0].rstrip(".")
    one: argparse.ArgumentParser = commands.add_parser(name, help=says, description=says)
    one.set_defaults(run=run)
    if run is not show:
        one.add_argument("--device", help="cpu (default), cuda:0, ...")
        one.add_argument("--weights", metavar="FILE", help="weights of the backbone, from a file")
    return one
