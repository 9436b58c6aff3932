import pytest

from workers.model.window_sizes import StatedSizes, read_sizes


@pytest.mark.parametrize(
    ("message", "prompt", "window"),
    [
        (
            (
                "This model's maximum context length is 8192 tokens. However, you requested 10000"
                " tokens (9000 in the messages, 1000 in the completion)."
            ),
            9_000,
            8_192,
        ),
        (
            (
                "This model's maximum context length is 16385 tokens. However, your messages"
                " resulted in 20012 tokens. Please reduce the length of the messages."
            ),
            20_012,
            16_385,
        ),
        (
            (
                "This model's maximum context length is 4096 tokens. However, you requested 5000"
                " tokens in the messages, Please reduce the length of the messages."
            ),
            5_000,
            4_096,
        ),
        ("prompt is too long: 210000 tokens > 200000 maximum", 210_000, 200_000),
        (
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000,"
                " decrease input length or `max_tokens` and try again"
            ),
            190_000,
            200_000,
        ),
        (
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed"
                " (1048576)."
            ),
            1_200_000,
            1_048_576,
        ),
        (
            (
                "request (5012 tokens) exceeds the available context size (4096 tokens), try"
                " increasing it"
            ),
            5_012,
            4_096,
        ),
        ("Range of input length should be [1, 30720]", None, 30_720),
        ("This model's maximum prompt length is 131072", None, 131_072),
        ("maximum context length is 1,048,576 tokens", None, 1_048_576),
        ("The request is too long.", None, None),
        ("Error 400 at 12:30", None, None),
    ],
)
def test_sizes_of_providers_sentences(
    message: str,
    prompt: int | None,
    window: int | None,
) -> None:
    assert read_sizes(message) == StatedSizes(prompt=prompt, window=window)
