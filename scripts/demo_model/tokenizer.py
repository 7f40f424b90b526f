"""The demo model's tokenizer: a small byte-level BPE with Qwen's special tokens, and its chat template."""

import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from demo_model.questions import NO_PICTURE, QA, of_several, questions
from demo_model.scenes import make_scene
from demo_model.wordings import WORDINGS

SPECIALS = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
).split()
CHAT_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.content is string %}{{- message.content }}{%- else %}{%- for part in message.content %}"
    "{%- if part.type == 'image' or 'image' in part or 'image_url' in part %}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif 'text' in part %}{{- part.text }}{%- endif %}{%- endfor %}{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


def corpus(seed: int = 5, scenes: int = 4000) -> list[str]:
    """Questions and answers in both languages, without what is printed in the pictures."""
    rng, texts = random.Random(seed), []
    for _ in range(scenes):
        scene = make_scene(rng, (128, 128))
        for zh in (False, True):
            for qa in questions(scene, rng, zh):
                texts.append(qa.question)
                if not qa.reading:
                    texts.append(qa.answer)
    for zh in (False, True):
        texts += [NO_PICTURE[zh], *WORDINGS["small talk"][zh].split("|")]
        texts += [of_several(QA("?", "", ""), i, zh).question for i in (0, 1)]
    return texts


def make_tokenizer() -> Tokenizer:
    """A byte-level BPE whose merges spell each frequent word from its first letter on.

    Such merges never join letters in the middle of a word, so printed words stay one token a letter, which is what
    makes reading learnable for a model this small.
    """
    byte_letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?[A-Za-z]+|\p{N}| ?[^\s\p{L}\p{N}]+|\p{Han}|\s+|\p{L}+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    counts: dict[str, int] = {}
    for text in corpus():
        for word, _ in split.pre_tokenize_str(text):
            counts[word] = counts.get(word, 0) + 1
    vocab, merges = {c: i for i, c in enumerate(byte_letters)}, []
    for word in sorted((w for w, n in counts.items() if n >= 3 and len(w) > 1), key=lambda w: -counts[w]):
        for i in range(1, len(word)):
            if word[: i + 1] not in vocab:
                vocab[word[: i + 1]] = len(vocab)
                merges.append((word[:i], word[i]))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    return tokenizer
