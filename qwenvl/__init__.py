"""Ask questions about pictures with Qwen3-VL on a machine without a GPU."""

__version__ = "0.1.0"
