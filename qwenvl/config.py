"""Every setting, declared once: name, default, meaning. Read from the environment, never from anywhere else.

`QWENVL_<NAME>` sets the field `<name>`; `HOST` and `PORT` stand without the prefix. README's table is held equal to
this file by a test.
"""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass

from qwenvl.errors import InvalidRequest

DETAILS = ("fast", "balanced", "fine")
QUANTIZATIONS = ("int8", "int4", "none", "bfloat16")
KV_DTYPES = ("auto", "bfloat16", "float32", "int8")
ISAS = ("", "avx512_vnni", "avx_vnni", "avx2", "plain", "stock")
MIB = 1024 * 1024


def setting(default, meaning: str, *, env: str | None = None, choices: tuple = (), least=None, secret=False):
    """A dataclass field that knows the environment variable it comes from and what it means; secrets are not shown."""
    meta = {"meaning": meaning, "env": env, "choices": choices, "least": least}
    return dataclasses.field(default=default, metadata=meta, repr=not secret)


@dataclass(frozen=True)
class Settings:
    """All settings of one process. `Settings()` has every default; `Settings.from_env()` reads the environment."""

    host: str = setting("127.0.0.1", "address to listen on; `0.0.0.0` for everybody on the network", env="HOST")
    port: int = setting(5000, "port to listen on", env="PORT", least=0)
    model: str = setting("auto", "`auto`, `demo`, a folder in Hugging Face layout, or a Hub id")
    quantization: str = setting(
        "int8", "`int8`, `int4` (faster writing, less exact), `bfloat16`, or `none` (float32)", choices=QUANTIZATIONS
    )
    quantization_skip: str = setting(
        "", "comma-separated parts of layer names kept in float, such as `visual.merger,lm_head`"
    )
    fidelity_percent: int = setting(
        5, "error in percent from which a layer is smoothed or kept in bfloat16 at the first start; 0 = unchecked",
        least=0,
    )  # fmt: skip
    cache_dir: str = setting(
        "", "folder where quantised weights wait for the next start; empty = `qwenvl` in `HF_HOME`, `off` = none"
    )
    threads: int = setting(0, "threads for the model; 0 = the least of CPU quota, affinity and physical cores", least=0)
    isa: str = setting(
        "", "kernels: `avx512_vnni`, `avx_vnni`, `avx2`, `plain`, or `stock` for torch's operators; empty = the best",
        choices=ISAS,
    )  # fmt: skip
    detail: str = setting("balanced", "default picture detail: `fast`, `balanced` or `fine`", choices=DETAILS)
    max_new_tokens: int = setting(512, "tokens an answer may have when a question does not say", least=1)
    max_new_tokens_limit: int = setting(2048, "the most a question may ask for", least=1)
    max_context_tokens: int = setting(8192, "tokens of pictures, conversation and answer together", least=64)
    speculation_tokens: int = setting(
        7, "tokens guessed ahead where an answer repeats what was said before; 0 = none", least=0
    )
    max_question_chars: int = setting(8000, "characters of one question or one earlier turn", least=1)
    max_images: int = setting(8, "pictures in one question", least=1)
    max_upload_bytes: int = setting(16 * MIB, "bytes of one picture's file", least=1)
    max_image_pixels: int = setting(50_000_000, "pixels of one picture, read from its header before decoding", least=1)
    memory_mb: int = setting(
        0, "MiB of memory in all, to which what stands below is cut down; 0 = 90 % of the container's or machine's",
        least=0,
    )  # fmt: skip
    work_bytes: int = setting(
        2048 * MIB, "bytes for reading questions, decoding pictures and taking in requests; what needs more is refused",
        least=MIB,
    )  # fmt: skip
    feature_cache_bytes: int = setting(512 * MIB, "bytes of encoded pictures kept in memory", least=0)
    kv_bytes: int = setting(
        2048 * MIB, "bytes for keys and values of running answers and of what is kept of earlier ones; used as needed",
        least=MIB,
    )  # fmt: skip
    kv_dtype: str = setting(
        "auto",
        "`bfloat16`, `float32` or `int8` keys and values; `auto` = bfloat16, or float32 where weights are",
        choices=KV_DTYPES,
    )
    prefix_cache_bytes: int = setting(
        1024 * MIB, "of these, bytes of earlier prompts and answers from which the next question goes on", least=0
    )
    upload_store_bytes: int = setting(
        256 * MIB, "bytes of uploaded pictures kept in memory; the oldest leave", least=MIB
    )
    upload_ttl_s: int = setting(3600, "seconds an uploaded picture is kept after its last use", least=1)
    queue_size: int = setting(32, "questions that may wait; more get `queue_full`", least=1)
    client_questions: int = setting(32, "questions a client (key, else address) may have open; 0 = any number", least=0)
    client_requests_per_minute: int = setting(3000, "requests a client may send in a minute; 0 = any number", least=0)
    answer_timeout_s: int = setting(600, "seconds one answer may take, waiting included", least=1)
    stall_timeout_s: int = setting(
        300, "seconds after which a slice of work that does not end is given up and the engine replaced; 0 = never",
        least=0,
    )  # fmt: skip
    api_keys: str = setting("", "comma-separated keys; every request must bring one; empty = open", secret=True)
    api_keys_file: str = setting("", "file with more keys, one a line; `#` begins a comment")
    proxies: int = setting(0, "proxies in front whose `X-Forwarded-For`, `-Proto` and `-Host` are believed", least=0)
    cors_origins: str = setting("", "comma-separated origins allowed to call from other pages; empty = none, `*` = all")
    log_level: str = setting(
        "INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read the environment; raise `InvalidRequest` naming the variable that is wrong."""
        values = {}
        for field in dataclasses.fields(cls):
            name = env_name(field)
            if name in environ and environ[name] != "":
                values[field.name] = _parse(name, environ[name], field)
        return cls(**values)


def env_name(field: dataclasses.Field) -> str:
    """The environment variable of a settings field."""
    return field.metadata["env"] or f"QWENVL_{field.name.upper()}"


def _parse(name: str, text: str, field: dataclasses.Field):
    """`text` as the field's type, within its limits."""
    meta = field.metadata
    try:
        value = field.type(text)
    except ValueError:
        raise InvalidRequest(f"{name} must be a whole number, not {text!r}") from None
    if meta["choices"] and value not in meta["choices"]:
        raise InvalidRequest(f"{name} must be one of {', '.join(meta['choices'])}, not {text!r}")
    if meta["least"] is not None and value < meta["least"]:
        raise InvalidRequest(f"{name} must be at least {meta['least']}, not {text!r}")
    return value
