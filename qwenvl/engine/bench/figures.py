"""The figures of one run, named as scripts rely on them. Knows names and units, not how anything is measured."""

import dataclasses
import json
from dataclasses import dataclass, field

from qwenvl.engine.bench.sample import PICTURE_SIZE

# everything about another engine or another configuration: names and numbers, or `error` and why there are none
Measured = dict[str, float | str]


@dataclass
class Figures:
    """The fields of the JSON line. Those that are None were not asked for and are left out.

    `limits` holds, under the names used here, what the machine's read bandwidth and products allow. `ratios` are ours
    divided by the baseline's: below 1 is better for seconds and GB, above 1 for tokens a second. `int4` has our
    own figures with weights in 4 bits, and in `decode_ratio_by_users` their speed of writing divided by int8's.
    """

    model: str = ""
    quantization: str = ""
    kernel: str = ""
    threads: int = 0
    read_bandwidth_gb_s: float = 0.0
    peak_gop_s: float = 0.0
    load_s: float = 0.0
    warm_load_s: float | None = None
    peak_load_rss_gb: float = 0.0
    peak_rss_gb: float = 0.0
    picture: str = "{}x{}".format(*PICTURE_SIZE)
    picture_tokens: int = 0
    prompt_tokens: int = 0
    encode_s: float = 0.0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    followup_first_token_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    decode_tokens_per_s_by_users: dict[str, float] = field(default_factory=dict)
    decode_fraction_of_limit: float = 0.0
    limits: dict = field(default_factory=dict)
    baselines: dict[str, Measured] | None = None
    ratios: dict[str, dict[str, float]] | None = None
    int4: dict | None = None
    note: str | None = None
    by_stage: list[Measured] | None = None
    by_picture_size: dict[str, Measured] | None = None

    def compare(self, baselines: dict[str, Measured]) -> None:
        """Keep the baselines, and ours divided by each of their numbers."""
        self.baselines, self.ratios = baselines, {}
        for name, theirs in baselines.items():
            shared = {key: value for key, value in theirs.items() if hasattr(self, key)}
            self.ratios[name] = {key: round(getattr(self, key) / value, 4) for key, value in shared.items() if value}

    def beside(self, int4: dict) -> None:
        """Keep what was measured with weights in 4 bits, and its speed of writing divided by int8's in turn with it."""
        rates, others = (int4.get(f"{kind}decode_tokens_per_s_by_users", {}) for kind in ("", "int8_"))
        ratios = {users: round(rate / others[users], 4) for users, rate in rates.items()}
        self.int4 = int4 | ({"decode_ratio_by_users": ratios} if ratios else {})

    def json(self) -> str:
        values = dataclasses.asdict(self)
        return json.dumps({name: value for name, value in values.items() if value is not None})
