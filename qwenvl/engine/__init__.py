"""The model: from a folder of weights to pieces of text. Only this package imports torch and transformers.

`load` is its door. Importing torch takes seconds, so nothing of it happens before.
"""

from qwenvl.config import Settings


def load(settings: Settings, report):
    """The engine of these settings, with the number of threads set before torch starts any."""
    report("importing", 0.0)
    from qwenvl.engine.threads import limit_threads

    limit_threads(settings.threads)
    from qwenvl.engine.loading import load_engine

    return load_engine(settings, report)
