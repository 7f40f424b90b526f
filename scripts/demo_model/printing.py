"""What is printed on the demo model's pictures: numbers, amounts, words, codes, dates and labelled values."""

import random

WORDS = (
    "hello world invoice total receipt order paid open closed exit stop start coffee tea milk bread apple orange "
    "banana water sugar salt rice fish beef soup pizza hotel room floor street road city north south east west "
    "monday tuesday friday sunday january march april june july august october name date price amount tax item "
    "number code phone email address sale free new old big small fast slow red green blue black white warning "
    "danger private public office school park bank shop market station airport ticket seat gate train bus taxi "
    "push pull entry menu lunch dinner breakfast welcome thanks please sorry happy birthday love peace music "
    "movie book paper pencil table chair window door house garden flower river mountain ocean island summer "
    "winter spring autumn morning evening night today tomorrow data test model image picture question answer "
    "computer python server memory energy power light sound video camera "
).split()
# every character the model learns to read
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz$.,:-/#%+&!?"


def make_number(rng: random.Random) -> str:
    digits = rng.choices(range(1, 9), (4, 8, 10, 16, 12, 10, 5, 4))[0]
    return str(rng.randint(1, 9)) + "".join(rng.choice("0123456789") for _ in range(digits - 1))


def make_amount(rng: random.Random) -> str:
    value = rng.choice((rng.uniform(1, 100), rng.uniform(10, 1000), rng.uniform(1000, 20000)))
    text = f"{value:,.2f}" if rng.random() < 0.6 else f"{value:.2f}"
    return rng.choice(("$", "$", "")) + text


def make_word(rng: random.Random) -> str:
    if rng.random() < 0.12:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if rng.random() < 0.6 else "abcdefghijklmnopqrstuvwxyz"
        return "".join(rng.choice(letters) for _ in range(rng.randint(2, 7)))
    word = rng.choice(WORDS)
    return rng.choice((word.upper(), word.upper(), word.title(), word.title(), word))


def make_code(rng: random.Random) -> str:
    letters = "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 5)))
    return letters + rng.choice(("-", "", "#", " ")) + digits


def make_date(rng: random.Random) -> str:
    return f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


LABELS = {
    "Total": make_amount,
    "Date": make_date,
    "No": make_number,
    "Tax": make_amount,
    "Order": make_number,
    "Price": make_amount,
}


MAKERS = {"number": make_number, "amount": make_amount, "word": make_word, "code": make_code, "date": make_date}


def make_line(rng: random.Random) -> tuple[str, str]:
    """A line of text and its kind."""
    kind = rng.choices(("number", "amount", "word", "words", "code", "date"), (32, 18, 22, 10, 12, 6))[0]
    if kind == "words":
        return f"{make_word(rng)} {make_word(rng) if rng.random() < 0.6 else make_number(rng)}", kind
    return MAKERS[kind](rng), kind
