"""What is wrong with bytes that are no HTTP, in words that hold none of them."""

from aiohttp import http_exceptions

from plancha.failure import Failure

LONGEST_LINE = 8190  # bytes: of the request line, and of a header's name and value
MOST_HEADERS = 128


def _failure(code: str, message: str) -> Failure:
    return Failure("invalid", message, None, code)


MALFORMED = _failure("malformed_request", "What came is not valid HTTP/1.1 (RFC 9112).")

BAD_BODY = _failure("invalid_body", "The body is not what its headers announce.")

_TLS = _failure(
    "https_on_http_port",
    "This port speaks HTTP without TLS; call it by http://, or by a proxy that ends TLS.",
)

_KINDS: tuple[tuple[type[Exception], Failure], ...] = (
    (
        http_exceptions.BadStatusLine,  # aiohttp's name for a request's first line too
        _failure(
            "malformed_request_line",
            "The request line is malformed; it must be a method, a path and HTTP/1.1, "
            "with one space between them, such as: GET /v1/models HTTP/1.1",
        ),
    ),
    (
        http_exceptions.InvalidURLError,
        _failure(
            "malformed_url",
            "The path is malformed; it must begin with / and be percent-encoded (RFC 3986).",
        ),
    ),
    (
        http_exceptions.LineTooLong,
        _failure(
            "line_too_long",
            f"The path, a header or a line of a chunked body is over {LONGEST_LINE:,} bytes.",
        ),
    ),
)

_REASONS = (
    (
        ("pause on pri",),
        _failure("http2_not_supported", "This port speaks HTTP/1.1, not HTTP/2."),
    ),
    (
        ("content-length", "transfer-encoding"),
        _failure(
            "malformed_length",
            "The body's length is malformed; it must be one Content-Length, a decimal number, "
            "or else Transfer-Encoding: chunked.",
        ),
    ),
    (
        ("chunk", "trailer"),
        _failure(
            "malformed_chunk",
            "The chunked body is malformed; each chunk must be its size in hexadecimal digits, "
            "CRLF, so many bytes and CRLF, and the last one of size 0 (RFC 9112, section 7.1).",
        ),
    ),
    (
        ("'host'",),
        _failure("malformed_host", "There must be exactly one header Host."),
    ),
    (
        ("too many headers",),
        _failure("too_many_headers", f"There may be {MOST_HEADERS} headers at most."),
    ),
    (
        ("header",),
        _failure(
            "malformed_header",
            "A header is malformed; each must be Name: value, "
            "with no space in its name and no control character in its value.",
        ),
    ),
)
"""By words of the parser's reason; what the peer sent comes in later lines of its message."""


def malformed(error: BaseException | None) -> Failure:
    """What to answer to what aiohttp's parser raised: one of a fixed set."""
    reason = str(getattr(error, "message", "")).partition("\n")[0].lower()
    if "https traffic" in reason:
        return _TLS
    for kind, failure in _KINDS:
        if isinstance(error, kind):
            return failure
    return next(
        (failure for words, failure in _REASONS if any(word in reason for word in words)),
        MALFORMED,
    )
