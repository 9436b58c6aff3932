"""Refusals as providers word them."""

import pytest

from workers.model.parameters import find_refused


@pytest.mark.parametrize(
    ("message", "param", "refused"),
    [
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "",
            "max_tokens",
        ),
        ("Unrecognized request argument supplied: stream_options", "", "stream_options"),
        ("Unknown parameter: 'response_format'.", "response_format", "response_format"),
        (
            "[{'loc': ['stream_options'], 'msg': 'Extra inputs are not permitted'}]",
            "",
            "stream_options",
        ),
        ("registry.ollama.ai/library/gemma:2b does not support tools", "", "tools"),
        (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser',
            "",
            "tool_choice",
        ),
        ("This model doesn't support function calling", "", "tools"),
        (
            "'response_format' of type 'json_object' is not supported with this model.",
            "response_format",
            "response_format",
        ),
        (
            "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
            "messages[0].role",
            "system",
        ),
        ("System role not supported", "", "system"),
        ("Developer instruction is not enabled for models/gemma-3-27b-it", "", "system"),
        ("Unexpected role: system", "", "system"),
    ],
)
def test_parameter_that_is_not_known(message: str, param: str, refused: str) -> None:
    assert find_refused(message, param) == refused


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("max_tokens is too large: 99999. This model supports at most 4096 tokens.", "max_tokens"),
        ("Invalid 'tools[0].function.name': string does not match pattern.", "tools[0]"),
        ("Unsupported value: 'temperature' does not support 0.2 with this model.", "temperature"),
        ("Unsupported image type", ""),
        ("", ""),
    ],
)
def test_other_refusals_are_none_of_these(message: str, param: str) -> None:
    assert find_refused(message, param) is None
