"""Everything that can be asked about a scene, with its one right answer, in English and Chinese. Knows no pixels."""

import random
import re
from dataclasses import dataclass

from demo_model.drawing import COLORS, PLACES, SHAPES, Scene
from demo_model.wordings import LABEL_WORDS, SHAPE_WORDS_ZH, ask

NO_PICTURE = {False: "Please give me a picture first.", True: "请先给我一张图片。"}


@dataclass(frozen=True)
class QA:
    """One question and its only right answer. `kind` names the skill; `reading` says which score it counts for."""

    question: str
    answer: str
    kind: str
    reading: bool = False


def questions(scene: Scene, rng: random.Random, zh: bool) -> list[QA]:
    """All questions about the scene in one language, in random wording; what matters more stands there more often."""
    facts = scene.facts
    found = [QA(ask(rng, "describe", zh), description(facts, zh), "describe", reading="lines" in facts)]
    if "items" in facts:
        found += _about_items(facts["items"], rng, zh) * 2
    if facts["scene"] in ("shapes", "mixed", "text") and rng.random() < 0.4:
        found.append(_background(facts["background"], rng, zh))
    if facts["scene"] == "plain":
        found += [_plain(facts["background"], rng, zh)] * 3
    if facts["scene"] == "band":
        found += _band(facts, rng, zh) * 2
    if "lines" in facts:
        found += _about_text(facts, rng, zh) * 3
    return found


def of_several(qa: QA, index: int, zh: bool) -> QA:
    """The same question about the first or second of two pictures."""
    if zh:
        return QA(f"第{'一二'[index]}张图片：{qa.question}", qa.answer, qa.kind, qa.reading)
    return QA(f"In the {('first', 'second')[index]} picture: {qa.question}", qa.answer, qa.kind, qa.reading)


def a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def at(cell: int) -> str:
    return "in the center" if cell == 4 else f"at the {PLACES[cell][0]}"


def in_zh(color: str) -> str:
    return COLORS[color][0]


def description(facts: dict, zh: bool) -> str:
    """What a person would say of the whole picture, in reading order."""
    if zh:
        return _description_zh(facts)
    ground = f"{a(facts['background'])} background"
    if facts["scene"] == "plain":
        return f"A plain {facts['background']} picture."
    if facts["scene"] == "band":
        return f"{a(facts['color']).capitalize()} band at the {PLACES[facts['cell']][0]} on {ground}."
    parts = [f"{a(color)} {shape} {at(cell)}" for color, shape, cell in facts.get("items", ())]
    if "lines" in facts:
        parts.append(f'the text "{" ".join(facts["lines"])}"')
    whole = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    return f"{whole[0].upper()}{whole[1:]} on {ground}."


def _description_zh(facts: dict) -> str:
    ground = f"{in_zh(facts['background'])}背景"
    if facts["scene"] == "plain":
        return f"一张纯{in_zh(facts['background'])}的图片。"
    if facts["scene"] == "band":
        return f"{ground}，{PLACES[facts['cell']][1]}有一条{in_zh(facts['color'])}的带子。"
    items = facts.get("items", ())
    parts = [f"{PLACES[cell][1]}有一个{in_zh(color)}{SHAPES[shape]}" for color, shape, cell in items]
    if "lines" in facts:
        parts.append(f"写着“{' '.join(facts['lines'])}”")
    return f"{ground}，{'，'.join(parts)}。"


def _about_items(items: list, rng: random.Random, zh: bool) -> list[QA]:
    found = []
    shapes, colors = [i[1] for i in items], [i[0] for i in items]
    lone_shapes = [i for i in items if shapes.count(i[1]) == 1]
    lone_colors = [i for i in items if colors.count(i[0]) == 1]
    if lone_shapes:
        found += [_color_of(rng.choice(lone_shapes), rng, zh), _place_of(rng.choice(lone_shapes), rng, zh)]
    if lone_colors:
        found.append(_shape_of(rng.choice(lone_colors), len(items), rng, zh))
    return [*found, _count(shapes, rng, zh), _is_there(items, rng, zh)]


def _color_of(item: tuple, rng: random.Random, zh: bool) -> QA:
    color, shape, _ = item
    if zh:
        said = rng.choice(SHAPE_WORDS_ZH[shape])
        return QA(ask(rng, "color", zh, said), f"{SHAPES[shape]}是{in_zh(color)}的。", "color")
    return QA(ask(rng, "color", zh, shape), f"The {shape} is {color}.", "color")


def _place_of(item: tuple, rng: random.Random, zh: bool) -> QA:
    _, shape, cell = item
    if zh:
        return QA(ask(rng, "place", zh, SHAPES[shape]), f"{SHAPES[shape]}在{PLACES[cell][1]}。", "place")
    return QA(ask(rng, "place", zh, shape), f"The {shape} is {at(cell)}.", "place")


def _shape_of(item: tuple, count: int, rng: random.Random, zh: bool) -> QA:
    color, shape, _ = item
    kind = "lone shape" if count == 1 and rng.random() < 0.5 else "shape"
    question = ask(rng, kind, zh, in_zh(color) if zh else color)
    return QA(question, f"是{SHAPES[shape]}。" if zh else f"It is a {shape}.", "shape")


def _count(shapes: list[str], rng: random.Random, zh: bool) -> QA:
    shape = rng.choice(shapes) if rng.random() < 0.8 else rng.choice(list(SHAPES))
    everything = rng.random() < 0.45
    n = len(shapes) if everything else shapes.count(shape)
    if zh:
        noun = "图形" if everything else SHAPES[shape]
        return QA(ask(rng, "count", zh, noun), f"有{n}个{noun}。", "count")
    noun = "shape" if everything else shape
    said = f"There is 1 {noun}." if n == 1 else f"There are {n} {noun}s."
    return QA(ask(rng, "count", zh, noun), said, "count")


def _is_there(items: list, rng: random.Random, zh: bool) -> QA:
    color, shape, _ = rng.choice(items)
    if rng.random() < 0.5:
        color, shape = rng.choice(list(COLORS)), rng.choice(list(SHAPES)) if rng.random() < 0.5 else shape
    there = any((c, s) == (color, shape) for c, s, _ in items)
    if zh:
        said = f"{'有' if there else '没有'}{in_zh(color)}{SHAPES[shape]}。"
        return QA(ask(rng, "yesno", zh, in_zh(color), SHAPES[shape]), said, "yesno")
    said = f"Yes, there is {a(color)} {shape}." if there else f"No, there is no {color} {shape}."
    return QA(ask(rng, "yesno", zh, a(color), shape), said, "yesno")


def _background(color: str, rng: random.Random, zh: bool) -> QA:
    said = f"背景是{in_zh(color)}的。" if zh else f"The background is {color}."
    return QA(ask(rng, "background", zh), said, "background")


def _plain(color: str, rng: random.Random, zh: bool) -> QA:
    return QA(ask(rng, "plain", zh), f"图片是{in_zh(color)}的。" if zh else f"The picture is {color}.", "color")


def _band(facts: dict, rng: random.Random, zh: bool) -> list[QA]:
    color, (place, place_zh) = facts["color"], PLACES[facts["cell"]]
    where = ask(rng, "band place", zh, in_zh(color) if zh else color)
    return [
        QA(where, f"带子在{place_zh}。" if zh else f"The band is at the {place}.", "place"),
        QA(ask(rng, "band color", zh), f"带子是{in_zh(color)}的。" if zh else f"The band is {color}.", "color"),
    ]


def _about_text(facts: dict, rng: random.Random, zh: bool) -> list[QA]:
    lines, kinds = facts["lines"], facts["kinds"]
    found = [QA(ask(rng, "read", zh), "\n".join(lines), "read", reading=True)]
    for name, value in facts["labels"].items():
        found.append(QA(ask(rng, "label", zh, LABEL_WORDS[name][zh]), value, "label", reading=True))
    digits = re.findall(r"\d+", " ".join(lines))
    if len(digits) == 1 and set(kinds) <= {"number", "word", "words"}:
        found.append(QA(ask(rng, "number", zh), digits[0], "number", reading=True))
    if kinds.count("amount") == 1:
        found.append(QA(ask(rng, "amount", zh), lines[kinds.index("amount")], "amount", reading=True))
    if kinds == ["word"]:
        found.append(QA(ask(rng, "word", zh), lines[0], "word", reading=True))
    return found
