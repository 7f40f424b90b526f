"""Every error a user can meet, one class a kind: a stable code, an HTTP status, a sentence to act on.

Knows nothing of Flask: `status` is a number that the web side renders.
"""


class QwenVLError(Exception):
    """Something a user can be told. `str(error)` is one sentence they can act on."""

    code = "internal"
    status = 500
    retry_after_s: int | None = None

    def __init__(self, message: str, *, retry_after_s: int | None = None):
        super().__init__(message)
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s


class MissingImage(QwenVLError):
    code, status = "missing_image", 400


class InvalidRequest(QwenVLError):
    code, status = "invalid_request", 400


class InvalidImage(QwenVLError):
    code, status = "invalid_image", 400


class EmptyImage(QwenVLError):
    code, status = "empty_image", 400


class InvalidBase64(QwenVLError):
    code, status = "invalid_base64", 400


class ContextLengthExceeded(QwenVLError):
    code, status = "context_length_exceeded", 400


class Unauthorized(QwenVLError):
    code, status = "unauthorized", 401


class UnknownImage(QwenVLError):
    code, status = "unknown_image", 404


class ImageFileTooLarge(QwenVLError):
    code, status = "image_file_too_large", 413


class ImageTooLarge(QwenVLError):
    """Too many pixels."""

    code, status = "image_too_large", 413


class UnsupportedImageType(QwenVLError):
    code, status = "unsupported_image_type", 415


class RateLimited(QwenVLError):
    code, status, retry_after_s = "rate_limited", 429, 5


class Internal(QwenVLError):
    """The answer broke on our side. Never carries a traceback's text."""


class QueueFull(QwenVLError):
    code, status, retry_after_s = "queue_full", 503, 10


class Loading(QwenVLError):
    code, status, retry_after_s = "loading", 503, 5


class AnswerTimeout(QwenVLError):
    code, status = "timeout", 504


class ModelError(QwenVLError):
    """The model folder cannot be used. Met at start, not by a client."""
