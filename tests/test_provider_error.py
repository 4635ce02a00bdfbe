"""The mapping of everything that a provider may refuse with."""

import json

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.provider_error import WORDS_MAX, ProviderError, map_status, map_transport


def refusal(status, message="no", **fields):
    return map_status(status, json.dumps({"error": {"message": message, **fields}}).encode(), 3.0)


@pytest.mark.parametrize(
    ("status", "kind", "permanent"),
    [
        (301, "redirect", True),
        (307, "redirect", True),
        (400, "invalid_request", True),
        (401, "auth", True),
        (402, "quota", True),
        (403, "auth", True),
        (404, "not_found", True),
        (405, "not_found", True),
        (408, "timeout", False),
        (409, "server", False),
        (413, "invalid_request", True),
        (418, "invalid_request", True),
        (422, "invalid_request", True),
        (425, "server", False),
        (429, "rate_limited", False),
        (500, "server", False),
        (502, "server", False),
        (503, "server", False),
        (504, "server", False),
        (529, "server", False),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b'{"error":{"type":"odd"}}'])
def test_a_status_decides_whether_asking_again_can_help(status, kind, permanent, body):
    """4xx are final but for 408, 409, 425 and 429; only behind a gateway's time-out is a bill."""
    error = map_status(status, body, 3.0)
    billed = status in (408, 502, 504)
    assert (error.kind, error.permanent, error.billed) == (kind, permanent, billed)
    assert error.retry_after_seconds == (None if permanent else 3.0)
    assert str(status) in error.words


@pytest.mark.parametrize(
    "fields",
    [
        {"code": "insufficient_quota"},
        {"type": "insufficient_quota"},
        {"message": "Your credit balance is too low"},
    ],
)
def test_429_for_used_up_quota_is_permanent(fields):
    """Hours of waiting do not bring money."""
    error = refusal(429, **fields)
    assert (error.kind, error.permanent) == ("quota", True)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("invalid JSON", {}),
        ("Malformed tool call", {}),
        ("[json.exception.parse_error.101] parse error at line 1", {}),
        ("Failed to parse tool call arguments as JSON", {}),
        ("x", {"type": "invalid_request_error"}),
    ],
)
def test_500_that_blames_the_request_is_permanent(message, fields):
    """Such a server says 500 for ever; the same words with 503 are another matter."""
    assert refusal(500, message, **fields).kind == "invalid_request"
    assert refusal(500, message, **fields).permanent
    assert not refusal(503, message, **fields).permanent
    assert not refusal(500, "Failed to parse input at pos 3").permanent


@pytest.mark.parametrize(
    "body",
    [
        {
            "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
                "param": "max_tokens",
                "code": "unsupported_parameter",
            }
        },
        {"error": {"message": "Extra inputs are not permitted", "param": "body.max_tokens"}},
        {
            "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
                "code": "invalid_request_body",
            }
        },
        {"error": {"message": "Unrecognized request argument supplied: max_completion_tokens"}},
        {"error": "property 'max_completion_tokens' is unsupported"},
        {"message": "parameter 'max_completion_tokens' is not a valid field"},
        {"detail": "max_completion_tokens: Extra inputs are not permitted"},
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "max_completion_tokens"]}]},
        {
            "object": "error",
            "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'max_completion_tokens'), "
            "'msg': 'Extra inputs are not permitted', 'input': 8192}]",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        {
            "object": "error",
            "message": {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "max_completion_tokens"],
                        "msg": "Extra inputs are not permitted",
                        "input": 32000,
                    }
                ]
            },
            "type": "invalid_request_error",
            "param": None,
        },
        {
            "detail": [
                {
                    "loc": ["body", "max_completion_tokens"],
                    "msg": "extra fields not permitted",
                    "type": "value_error.extra",
                }
            ]
        },
        {
            "error": {
                "message": "litellm.UnsupportedParamsError: mistral does not support parameters: "
                "{'max_completion_tokens': 4096}, for model=mistral-small-latest. To drop these, "
                "set `litellm.drop_params=True`",
                "type": "None",
                "param": None,
                "code": "400",
            }
        },
        {
            "error": {
                "message": "litellm.BadRequestError: OpenAIException - Error code: 400 - {'error': "
                "{'message': \"Unsupported parameter: 'max_tokens' is not supported with this "
                "model. Use 'max_completion_tokens' instead.\", 'param': 'max_tokens'}}",
                "code": "400",
            }
        },
        {"error": {"message": "got an unexpected keyword argument 'max_completion_tokens'"}},
        {"error": {"message": "This model does not support max_tokens."}},
        {"error": {"message": "unknown field `max_completion_tokens`, expected one of `model`"}},
        [{"error": {"message": 'Unknown name "max_completion_tokens": Cannot find field.'}}],
        "Additional properties are not allowed ('max_tokens' was unexpected)",
    ],
)
@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_name_of_the_output_limit_is_told_from_other_refusals(body, status):
    """However it is worded, and wherever the server puts it."""
    refused = map_status(status, json.dumps(body).encode())
    assert (refused.kind, refused.permanent, refused.billed) == ("limit_name", True, False)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("max_tokens is too large: 99999. This model supports at most 16384 tokens", {}),
        (
            "max_tokens is too large: 20000. This model supports at most 16384 completion tokens, "
            "whereas you provided 20000.",
            {"param": "max_tokens", "code": "invalid_value"},
        ),
        (
            "Unsupported value: 'max_tokens' does not support 4096 with this model. Only the "
            "default (1024) value is supported.",
            {"param": "max_tokens", "code": "unsupported_value"},
        ),
        ("Unsupported value: 'max_tokens' does not support 4096 with this model.", {}),
        ("'max_tokens' does not support 4096 with this model", {"param": "max_tokens"}),
        ("Not supported", {"param": "max_tokens", "code": "unsupported_value"}),
        ("this value is unsupported", {"param": "body.max_tokens"}),
        ("This model does not support max_tokens of 8192", {}),
        ("max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens", {}),
        ("max_tokens (384000) exceeds model's maximum output tokens (65536)", {}),
        ("'max_tokens' or 'max_completion_tokens' is too large: 32000", {}),
        ("max_tokens must be at least 1, got -186.", {"code": 400}),
        ("max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000", {}),
        (
            "`max_completion_tokens` must be less than or equal to `8192`, the maximum value for "
            "`max_completion_tokens` is less than the `context_window` for this model",
            {"param": "max_completion_tokens"},
        ),
        (
            "The parameter `max_completion_tokens` specified in the request are not valid: integer "
            "above maximum value, expected a value <= 12288, but got 32000 instead.",
            {"param": "max_completion_tokens", "code": "InvalidParameter"},
        ),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", {}),
        ("Param Incorrect", {"param": "max_tokens is too large: 1048576.", "code": "400"}),
        ("Invalid 'max_tokens': integer below minimum value", {"param": "max_tokens"}),
        ("max_tokens and max_completion_tokens cannot be set at the same time", {}),
        ("Unsupported parameter: 'temperature'; max_tokens is fine", {"param": "temperature"}),
        ("Unsupported parameter: 'temperature'; max_tokens is fine", {}),
        ("tools are not supported by this model (max_tokens: 4096)", {}),
        ("tools are not supported (max_tokens was 4096)", {}),
        ("tools are not supported by this model. max_tokens is fine.", {}),
        ("max_tokens=4096, but tools are not supported by this model", {}),
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra inputs are not "
            "permitted', 'input': 5}, {'type': 'int_type', 'loc': ('body', 'max_tokens')}]",
            {},
        ),
        ("Unknown model", {}),
        ("unknown field max_tokens_to_sample", {}),
    ],
)
def test_a_refusal_that_another_name_would_not_mend_is_none_of_the_name(message, fields):
    """A wrong value, another parameter: asking under the other name would be of no use."""
    assert refusal(400, message, **fields).kind == "invalid_request"


@pytest.mark.parametrize("status", [400, 413, 422, 500])
@pytest.mark.parametrize(
    ("message", "fields", "limit", "used"),
    [
        (
            "request (6031 tokens) exceeds the available context size (2048 tokens)",
            {"type": "exceed_context_size_error"},
            2048,
            6031,
        ),
        (
            "the request exceeds the available context size",
            {"type": "exceed_context_size_error", "n_ctx": 2048, "n_prompt_tokens": 6031},
            2048,
            6031,
        ),
        ("The prompt is too long: 9000, model maximum context length: 8192", {}, 8192, 9000),
        (
            "This endpoint's maximum context length is 8,192 tokens. However, you requested about "
            "9000 tokens (8000 of text input, 1000 in the output).",
            {"code": 400},
            8192,
            9000,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted "
            "in 9000 tokens.",
            {"code": "context_length_exceeded"},
            8192,
            9000,
        ),
        ("prompt is too long: 210000 tokens > 200000 maximum", {}, 200000, 210000),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            {},
            200000,
            190000,
        ),
        (
            "Input token count 1200000 exceeds the maximum number of tokens allowed (1048576).",
            {},
            1048576,
            1200000,
        ),
        ("total message size 4204571 exceeds limit 2097152", {}, None, None),
        ("Your input exceeds the context window of this model", {}, None, None),
        ("no", {"code": "context_length_exceeded"}, None, None),
    ],
)
def test_an_overflow_is_told_by_code_or_words(status, message, fields, limit, used):
    """Each wording is an overflow, with the tokens where they are given."""
    error = refusal(status, message, **fields)
    assert (error.kind, error.permanent) == ("overflow", True)
    assert (error.limit_tokens, error.used_tokens) == (limit, used)


def test_words_of_an_overflow_elsewhere_are_no_overflow():
    """A busy server that mentions the context length is still only busy."""
    assert refusal(429, "maximum context length is 5 tokens, you sent 6").kind == "rate_limited"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "the reason"}}', "the reason"),
        (b'{"error": "the reason"}', "the reason"),
        (b'{"message": "the reason"}', "the reason"),
        (b'{"detail": "the reason"}', "the reason"),
        (b'{"detail": [{"msg": "the reason"}]}', "the reason"),
        (b'[{"error": {"message": "the reason"}}]', "the reason"),
        (b"the reason", "the reason"),
        (b"<html><style>a{}</style><h1>the\n reason</h1></html>", "the reason"),
        (b'{"error": {"message": "the\\u001b[31m \\u202ereason"}}', "the [31m reason"),
        (b"", "without a word"),
    ],
)
def test_the_words_are_one_line_of_plain_text(body, words):
    """Wherever a server puts its message, it arrives without markup and control characters."""
    said = map_status(503, body).sealed(None).words
    assert words in said
    assert said.isprintable()
    assert "{}" not in said


@settings(max_examples=50, deadline=None)
@given(st.integers(300, 599), st.binary(max_size=100))
def test_any_refusal_is_mapped(status, body):
    """No body raises, and the words stay short."""
    assert len(map_status(status, body).sealed(None).words) <= WORDS_MAX


@pytest.mark.parametrize("padding", range(0, 400, 7))
def test_the_key_is_taken_out_before_the_words_are_cut(padding):
    """Wherever the key stands, not even its beginning is left."""
    error = refusal(401, "x" * padding + "sk-secret-value" + "y" * 3000).sealed("sk-secret-value")
    assert "sk-" not in error.words
    assert "secret" not in str(error)


def test_a_sealed_error_keeps_its_facts():
    """Sealing changes the words alone."""
    error = ProviderError(
        "overflow", "w", permanent=True, billed=True, retry_after_seconds=1.0, limit_tokens=2
    )
    sealed = error.sealed("k")
    assert vars(sealed) == vars(error)


@pytest.mark.parametrize(
    ("error", "kind", "permanent", "billed"),
    [
        (httpx.ConnectError("x"), "connection", False, False),
        (httpx.ConnectTimeout("x"), "connection", False, False),
        (httpx.PoolTimeout("x"), "connection", False, False),
        (httpx.WriteError("x"), "connection", False, False),
        (httpx.WriteTimeout("x"), "connection", False, False),
        (httpx.ReadTimeout("x"), "timeout", False, True),
        (httpx.ReadError("x"), "broken", False, True),
        (httpx.RemoteProtocolError("x"), "broken", False, True),
        (httpx.DecodingError("x"), "broken", False, True),
        (httpx.LocalProtocolError("x"), "invalid_request", True, False),
        (httpx.UnsupportedProtocol("x"), "invalid_request", True, False),
    ],
)
def test_a_transport_failure_says_whether_it_may_be_billed(error, kind, permanent, billed):
    """Billed is everything after the request may have arrived whole."""
    mapped = map_transport(error)
    assert (mapped.kind, mapped.permanent, mapped.billed) == (kind, permanent, billed)
