"""How often the demo model is right about pictures it has never seen, in int8 and in float32, and with keys and values
kept in fewer bits.

Usage: `python scripts/evaluate_demo_model.py --count 1000 --quantization int8 int4 none`. Whole answers must be right
to the letter. Layers are guarded as they are when it is served.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the package lies beside this folder

from demo_model.accuracy import answers, held_out, scores
from qwenvl.config import Settings
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import DEMO_FOLDER, Source
from qwenvl.engine.loading import load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="pictures, one question each")
    parser.add_argument("--folder", type=Path, default=DEMO_FOLDER)
    parser.add_argument("--quantization", nargs="+", default=["int8", "none"])
    parser.add_argument("--kv-dtype", nargs="+", default=["bfloat16"], choices=["float32", "bfloat16", "int8"])
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print")
    args = parser.parse_args()
    asked = list(held_out(args.count))
    for quantization in args.quantization:
        model = load_model(
            Source(args.folder, "demo"), quantization, "", lambda stage, fraction: None,
            fidelity_limit=Settings().fidelity_percent / 100,
        )  # fmt: skip
        for kv_dtype in args.kv_dtype:
            said = answers(Engine(model, slots=16, kv_dtype=getattr(torch, kv_dtype)), asked)
            print(f"{quantization}, keys and values in {kv_dtype}: {args.count} held-out pictures")
            report(asked, said, args.show)


def report(asked: list, said: list[str], show: int) -> None:
    """The scores by kind of question, and the first `show` wrong answers."""
    for kind, (right, count) in sorted(scores(asked, said).items(), key=lambda row: row[0].startswith(" ")):
        print(f"  {kind:24} {right / count:6.1%}  of {count}")
    wrong = [(qa, s) for (_, qa), s in zip(asked, said, strict=True) if qa.answer != s]
    for qa, answer in wrong[:show]:
        print(f"    {qa.question!r}: {answer!r}, not {qa.answer!r}")


if __name__ == "__main__":
    main()
