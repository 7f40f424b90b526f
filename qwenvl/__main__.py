"""`python -m qwenvl ask PICTURE "question"` and `python -m qwenvl bench`: the server's own engine in a terminal.

Like `app.py` this joins layers; unlike it, there is no web in it.
"""

import argparse
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from qwenvl.config import DETAILS, Settings
from qwenvl.engine import load
from qwenvl.errors import QwenVLError
from qwenvl.messages import Answer, Failed, Finished, Piece, Progress, Question
from qwenvl.native import SimpleQueue, sleep
from qwenvl.service import Service


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status. Errors are one line on standard error."""
    args = arguments().parse_args(argv)
    try:
        return args.run(args)
    except QwenVLError as error:
        print(f"qwenvl: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m qwenvl", description="Ask questions about pictures on a CPU.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    ask = commands.add_parser("ask", help="answer one question about one or more pictures")
    ask.add_argument("words", nargs="+", metavar="PICTURE... [QUESTION]", help="picture files, then the question")
    ask.add_argument("--detail", choices=DETAILS)
    ask.add_argument("--max-new-tokens", type=int)
    ask.add_argument("--temperature", type=float)
    ask.set_defaults(run=run_ask)
    bench = commands.add_parser("bench", help="measure this machine; the last line is JSON")
    bench.add_argument("--model", default="random-2b", help="random-2b (default), demo, a folder or a Hub id")
    bench.add_argument("--users", type=int, nargs="+", default=[1, 2, 4, 8], help="numbers of users to measure")
    bench.add_argument("--tokens", type=int, default=32, help="tokens each user gets while speed is measured")
    bench.add_argument("--baseline", action="store_true", help="also measure transformers and stock quantize_dynamic")
    bench.add_argument("--tables", action="store_true", help="also measure by stage of the engine and by picture size")
    bench.add_argument("--int4", action="store_true", help="also measure int4, and its speed beside int8's")
    bench.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the stages of one question (matplotlib)")
    bench.set_defaults(run=run_bench)
    fidelity = commands.add_parser("fidelity", help="what quantising does to each layer of the model, worst first")
    fidelity.add_argument("--json", action="store_true", help="one JSON list instead of a table")
    fidelity.set_defaults(run=run_fidelity)
    return parser


def run_bench(args: argparse.Namespace) -> int:
    from qwenvl.engine.bench.run import Plan, bench

    plan = Plan(args.model, tuple(args.users), args.tokens, args.baseline, args.tables, args.plot, args.int4)
    bench(Settings.from_env(), plan)
    return 0


def run_fidelity(args: argparse.Namespace) -> int:
    settings = Settings.from_env()
    logging.basicConfig(level=logging.ERROR)
    engine = load(settings, lambda stage, fraction, *_: show_progress(f"{stage} {fraction:.0%}"))
    show_progress("")
    rows = [dataclasses.asdict(layer) for layer in engine.model.fidelity]
    if args.json:
        print(json.dumps(rows))
        return 0
    for row in sorted(rows, key=lambda row: -max(row["int8_error"], row["int4_error"] or 0)):
        name = " + ".join(part.removeprefix("model.") for part in row["name"].split("+"))
        print(f"{row['int8_error']:8.2%}   {name}{treated(row)}")
    if not rows:
        print("not measured: the model is not quantised, or QWENVL_FIDELITY_PERCENT is 0", file=sys.stderr)
    return 0


def treated(row: dict) -> str:
    """What became of a product that is not simply int8."""
    if row["treatment"] != "int8":
        return f"   {row['treatment']}: {row['error']:.2%}"
    return "" if row["int4_error"] is None else f"   int8; int4 would be {row['int4_error']:.2%}"


def run_ask(args: argparse.Namespace) -> int:
    settings = Settings.from_env()
    logging.basicConfig(level=settings.log_level, format="%(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    service = Service(settings, lambda report: load(settings, report))
    question = read_question(service, args)
    service.start()
    wait_until_ready(service)
    answer = stream(service, question)
    facts = answer.timings
    line = f"{answer.finish_reason}; first token {facts.first_token_s:.1f} s, {facts.tokens_per_s:.1f} tokens/s"
    print(f"\n[{answer.model}: {line}]", file=sys.stderr)
    return 0


def read_question(service: Service, args: argparse.Namespace) -> Question:
    """Words that name files are pictures, the last other one is the question."""
    options = service.options(detail=args.detail, max_new_tokens=args.max_new_tokens, temperature=args.temperature)
    *files, last = args.words
    text = None
    if not os.path.isfile(last) and files:
        text = last
    else:
        files.append(last)
    pictures = [service.open_picture(read_file(name), options.detail) for name in files]
    return service.question(pictures, text, None, options)


def read_file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise QwenVLError(f"{name}: {error.strerror}") from None


def wait_until_ready(service: Service) -> None:
    """Show how far loading is; raise if it ended without a model."""
    while True:
        ready, facts = service.health()
        if ready:
            return show_progress("")
        if facts["status"] == "failed":
            show_progress("")
            raise QwenVLError(facts["error"])
        show_progress(f"{facts['stage']} {facts['fraction']:.0%}{transferred(facts)}")
        sleep(0.05)


def transferred(facts: dict) -> str:
    """How much of a download is here and how fast it comes; nothing while nothing is downloaded."""
    if "bytes_total" not in facts:
        return ""
    return f" of {facts['bytes_total'] / 1e9:.2f} GB at {facts['rate_bytes_s'] / 1e6:.1f} MB/s"


def stream(service: Service, question: Question) -> Answer:
    """Print the answer as it comes."""
    inbox = SimpleQueue()
    ticket = service.ask(question, inbox.put)
    try:
        while True:
            message = inbox.get()
            if isinstance(message, Progress):
                show_progress(f"{message.stage} {message.fraction:.0%}")
            elif isinstance(message, Piece):
                show_progress("")
                print(message.text, end="", flush=True)
            elif isinstance(message, Failed):
                raise message.error
            elif isinstance(message, Finished):
                print()
                return message.answer
    except KeyboardInterrupt:
        ticket.cancel()
        raise


def show_progress(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
