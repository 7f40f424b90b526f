"""The many ways in which people ask the same thing: kind -> wordings in English and in Chinese, split at `|`."""

import random

WORDINGS = {
    "describe": (
        "Describe this picture.|Describe the image.|What is in this picture?|What do you see?"
        "|Describe this image.|What is this?",
        "请描述这张图片|请描述这张图片|描述这张图片。|图片里有什么？|这是什么？|请描述一下图片内容。|你看到了什么？",
    ),
    "color": (
        "What color is the {0}?|What color is the {0}?|What colour is the {0}?|What is the color of the {0}?"
        "|Which color does the {0} have?",
        "{0}是什么颜色？|{0}是什么颜色的？|图中的{0}是什么颜色？|这个{0}是什么颜色？|{0}的颜色是什么？",
    ),
    "place": (
        "Where is the {0}?|Where is the {0} in the picture?|In which part of the picture is the {0}?",
        "{0}在哪里？|{0}在什么位置？|图中的{0}在哪里？",
    ),
    "shape": (
        "What shape is {0}?|Which shape is {0}?|What is the {0} shape?",
        "{0}的是什么形状？|{0}的图形是什么形状？",
    ),
    "lone shape": (
        "What shape is this?|What shape is it?|What shape is in the picture?",
        "这是什么形状？|图中是什么形状？",
    ),
    "count": (
        "How many {0}s are there?|How many {0}s are in the picture?|How many {0}s do you see?",
        "有几个{0}？|图中有几个{0}？|有多少个{0}？",
    ),
    "yesno": ("Is there {0} {1}?|Do you see {0} {1}?", "有{0}{1}吗？|图中有没有{0}{1}？"),
    "background": ("What color is the background?|What is the background color?", "背景是什么颜色？|背景色是什么？"),
    "plain": (
        "What color is this?|What color is the picture?|What color is this picture?|What color is this image?"
        "|What is the main color?|What color do you see?",
        "这是什么颜色？|图片是什么颜色？|这张图片是什么颜色？|主要是什么颜色？",
    ),
    "band place": (
        "Where is the band?|Where is the {0} band?|On which side is the {0} band?",
        "带子在哪里？|{0}的带子在哪里？|带子在哪一边？",
    ),
    "band color": ("What color is the band?", "带子是什么颜色？"),
    "read": (
        "What does it say?|What does the text say?|Read the text.|Read all text.|What is written in the picture?"
        "|Read the text in this picture.|What text is shown?|Read all the text in this image.",
        "图片上写了什么？|读出所有文字。|请读出图中的文字。|上面写着什么？|图片里的文字是什么？|写的是什么？|读出文字。",
    ),
    "number": (
        "What number is shown?|What is the number?|What number is on the card?|What number is in the picture?"
        "|Read the number.|Which number do you see?|What number is this?",
        "数字是多少？|图中的数字是什么？|卡片上的数字是多少？|读出数字。|号码是多少？",
    ),
    "amount": (
        "What is the amount?|How much is it?|What is the price?|What amount is shown?|What is the total?",
        "金额是多少？|多少钱？|价格是多少？|总额是多少？",
    ),
    "word": (
        "What word is shown?|What is the word?|Which word is in the picture?|Read the word.",
        "这个词是什么？|写着什么词？",
    ),
    "label": ("What is the {0}?|Read the {0}.", "{0}是多少？|{0}是什么？"),
    "small talk": ("Hello|Hi|Who are you?|What can you do?|Hello!", "你好|你是谁？|你能做什么？|你好！"),
}
SHAPE_WORDS_ZH = {
    "circle": ("圆形", "圆", "圆圈"),
    "square": ("正方形", "方块"),
    "triangle": ("三角形",),
    "star": ("星形", "星星"),
}
LABEL_WORDS = {
    "Total": ("total", "总额"),
    "Date": ("date", "日期"),
    "No": ("number", "编号"),
    "Tax": ("tax", "税"),
    "Order": ("order number", "订单号"),
    "Price": ("price", "价格"),
}


def ask(rng: random.Random, kind: str, zh: bool, *names: str) -> str:
    """One wording of a kind of question, about `names`."""
    return rng.choice(WORDINGS[kind][zh].split("|")).format(*names)


def reword(question: str, rng: random.Random) -> str:
    """The same question as people type it: without its mark, in lower case, with a half-width mark."""
    if rng.random() < 0.2:
        question = question.rstrip("?？.。")
    elif rng.random() < 0.1:
        question = question.replace("？", "?")
    if rng.random() < 0.15 and question.isascii():
        question = question[0].lower() + question[1:]
    return question
