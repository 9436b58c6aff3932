from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ContextLengthError
from tests.unit.workers.context.histories import REQUESTS, a_round, assistant, user
from workers.context.budget import Budget
from workers.context.cuts import MARK, MAX_CHARS
from workers.context.estimate import estimate_messages, estimate_tools
from workers.context.guard import ContextGuard, Fitted
from workers.context.messages import ImagePart, Message
from workers.context.pins import pinned_messages
from workers.context.rounds import split_units
from workers.context.truncate import is_protected
from workers.model.values import ModelRequest, ModelTarget, ToolSchema

SYSTEM = Message(role="system", content="Be careful.", origin="instructions")
QUERY = Message(role="user", content="What now?", pinned=True, origin="query")
TOOL = ToolSchema(name="look", description="Look it up.", parameters={"type": "object"})
TALK = (user("q " * 500), assistant("a " * 500))


def target(context_size: int = 8_000, max_output_tokens: int = 4_000) -> ModelTarget:
    return ModelTarget(
        name="model-1",
        base_url="http://model",
        api_key="k",
        context_size=context_size,
        max_output_tokens=max_output_tokens,
    )


def request(*messages: Message, tools: tuple[ToolSchema, ...] = (TOOL,)) -> ModelRequest:
    return ModelRequest(target=target(), messages=messages, tools=tools)


def injection(text: str) -> Message:
    return Message(role="user", content=text, pinned=True, origin="injection")


def fit(given_request: ModelRequest) -> Fitted:
    return ContextGuard().fit(given_request, hint="react_iteration")


def test_within_the_budget_the_messages_are_untouched() -> None:
    given_request = request(SYSTEM, *TALK, QUERY)
    fitted = fit(given_request)
    assert fitted.request.messages is given_request.messages
    assert fitted.compaction is None
    assert given_request.max_tokens is None


def test_answer_gets_what_the_prompt_leaves() -> None:
    assert fit(request(SYSTEM, QUERY)).request.max_tokens == 4_000
    small = replace(request(SYSTEM, QUERY), target=target(max_output_tokens=7_990))
    prompt_tokens = estimate_messages((SYSTEM, QUERY)) + estimate_tools([TOOL])
    assert fit(small).request.max_tokens == 8_000 - prompt_tokens


def test_smaller_limit_of_the_caller_is_kept() -> None:
    assert fit(replace(request(QUERY), max_tokens=7)).request.max_tokens == 7


def test_over_the_budget_the_oldest_are_left_out() -> None:
    given_request = request(SYSTEM, *TALK * 10, QUERY)
    fitted = fit(given_request)
    kept = fitted.request.messages
    compaction = fitted.compaction
    assert compaction is not None
    assert kept == (SYSTEM, *TALK * ((len(kept) - 2) // 2), QUERY)
    assert (compaction.layer, compaction.method) == ("guard", "truncate")
    assert (compaction.hint, compaction.purpose) == ("react_iteration", "loop")
    assert (compaction.original_messages, compaction.kept_messages) == (22, len(kept))
    tool_tokens = estimate_tools([TOOL])
    assert compaction.tokens_before == estimate_messages(given_request.messages) + tool_tokens
    assert compaction.tokens_after == estimate_messages(kept) + tool_tokens <= 4_000
    assert compaction.unpinned == 0
    assert "over the budget of 4000" in compaction.reason


def test_tool_schemas_are_part_of_the_request() -> None:
    large = replace(TOOL, description="x" * 8_000)
    with_tools = fit(request(SYSTEM, *TALK * 5, QUERY, tools=(large,))).request.messages
    without = fit(request(SYSTEM, *TALK * 5, QUERY, tools=())).request.messages
    assert len(with_tools) < len(without)


@pytest.mark.parametrize("pinned", [True, False])
def test_long_message_is_cut_though_all_fits(pinned: bool) -> None:  # noqa: FBT001
    long = user("x" * 60_000, pinned=pinned)
    wide = replace(request(SYSTEM, long), target=target(128_000, 64_000))
    fitted = fit(wide)
    cut = fitted.request.messages[1]
    assert len(cut.text) == MAX_CHARS
    assert cut.text.endswith(MARK)
    assert cut.pinned is pinned
    assert fitted.compaction is not None
    assert "more than 50000 characters" in fitted.compaction.reason
    assert "budget" not in fitted.compaction.reason


def test_query_over_the_budget_keeps_head_and_tail() -> None:
    long = replace(QUERY, content="head" + "漢" * 20_000 + "tail")
    fitted = fit(request(SYSTEM, *TALK, long))
    query = fitted.request.messages[-1]
    assert query.text.startswith("head")
    assert query.text.endswith("tail")
    assert MARK in query.text
    assert query.pinned
    assert fitted.request.messages[0] is SYSTEM
    assert fitted.compaction is not None
    assert fitted.compaction.tokens_after <= 4_000
    assert "beginning and end" in fitted.compaction.reason


def test_query_over_the_budget_leaves_room_for_the_work() -> None:
    long = replace(QUERY, content="漢" * 20_000)
    looked = a_round("found " * 100)
    assert fit(request(SYSTEM, long, *looked)).request.messages[-2:] == looked


def test_injections_lose_their_pin_before_the_query_is_cut() -> None:
    old = [injection(f"{number} " + "x" * 3_000) for number in range(4)]
    messages = (SYSTEM, QUERY, *old[:3], *a_round("y " * 2_000), old[3])
    fitted = fit(request(*messages))
    kept = fitted.request.messages
    assert fitted.compaction is not None
    assert fitted.compaction.unpinned == 2
    unpinned = replace(old[1], pinned=False)
    assert kept == (SYSTEM, QUERY, unpinned, old[2], *messages[-3:])
    assert all(message.pinned for message in old)


def test_newest_tool_results_are_cut_rather_than_left_out() -> None:
    asked, small, large = a_round("small", "begin" + "x" * 40_000 + "end")
    old = a_round("old " * 100, name="old")
    fitted = fit(request(SYSTEM, QUERY, *old, asked, small, large))
    kept = fitted.request.messages
    assert kept[:4] == (SYSTEM, QUERY, asked, small)
    assert kept[4].text.startswith("begin")
    assert kept[4].text.endswith("end")
    assert kept[4].tool_call_id == large.tool_call_id
    assert fitted.compaction is not None
    assert "newest tool results" in fitted.compaction.reason


def test_fixed_parts_over_the_budget_leave_some_room() -> None:
    tools = (replace(TOOL, description="x" * 20_000),)
    fitted = fit(request(SYSTEM, *TALK, QUERY, tools=tools))
    assert fitted.request.messages == (SYSTEM, *TALK, QUERY)
    assert fitted.request.max_tokens is not None
    assert 1_000 < fitted.request.max_tokens < 4_000


def test_fixed_parts_over_the_window_fail_with_the_numbers() -> None:
    tools = (replace(TOOL, description="x" * 32_000),)
    with pytest.raises(ContextLengthError) as caught:
        fit(request(SYSTEM, QUERY, tools=tools))
    sentence = caught.value.message
    for fact in ("model-1", "8000 tokens", "about 6,", "1 tools 80", "that must stay 6"):
        assert fact in sentence


def test_images_that_must_stay_over_the_window_fail() -> None:
    images = Message(role="user", content=(ImagePart(url="u"),) * 20, pinned=True, origin="query")
    with pytest.raises(ContextLengthError):
        fit(request(images))


def test_ten_megabytes_of_one_character_fit() -> None:
    for character in ("a", "漢", "\0", "\ud800"):
        fitted = fit(request(SYSTEM, replace(QUERY, content=character * 10_000_000)))
        assert fitted.compaction is not None
        assert fitted.compaction.tokens_after <= 4_000


@given(REQUESTS, st.integers(1_000, 20_000), st.integers(1, 20_000))
def test_properties(
    messages: tuple[Message, ...],
    context_size: int,
    max_output_tokens: int,
) -> None:
    given_request = ModelRequest(
        target=target(context_size, max_output_tokens), messages=messages, tools=(TOOL,)
    )
    budget = Budget.of(given_request.target)
    copies = tuple(replace(message) for message in messages)
    system_tokens = estimate_messages(messages[:1])
    try:
        fitted = fit(given_request)
    except ContextLengthError:
        assert system_tokens + estimate_tools([TOOL]) > budget.usable // 2
        return
    kept = fitted.request.messages
    tokens = estimate_messages(kept) + estimate_tools([TOOL])

    assert messages == copies
    assert kept[0] is messages[0]
    assert (
        tokens <= budget.usable
        or all(map(is_protected, split_units(kept)))
        or (system_tokens + estimate_tools([TOOL]) + 1_000 > budget.usable)
    )
    assert fitted.request.max_tokens == budget.max_tokens_for(tokens)
    assert tokens + (fitted.request.max_tokens or 0) <= context_size
    assert kept[1].role == "user"
    assert (fitted.compaction is None) is (kept is messages)
    for unit in split_units(kept):
        results = [message.tool_call_id for message in unit[1:]]
        assert results == [call.id for call in unit[0].tool_calls]
    origins = [message.origin for message in kept]
    assert origins.count("query") == 1
    newest_injection = [item for item in messages if item.origin == "injection"][-1:]
    pinned = pinned_messages(kept)
    assert [item.origin for item in pinned][-1:] == (
        ["injection"] if newest_injection else ["query"]
    )
    if not any(MARK in message.text for message in pinned):
        assert next(message for message in messages if message.origin == "query") in pinned
        assert all(message in pinned for message in newest_injection)


@given(REQUESTS, st.integers(1_000, 20_000))
def test_fitting_again_changes_nothing(messages: tuple[Message, ...], context_size: int) -> None:
    given_request = ModelRequest(target=target(context_size, 4_000), messages=messages)
    try:
        fitted = fit(given_request)
    except ContextLengthError:
        return
    if estimate_messages(fitted.request.messages) <= Budget.of(given_request.target).usable:
        assert fit(fitted.request).request == fitted.request
        assert fit(fitted.request).compaction is None
