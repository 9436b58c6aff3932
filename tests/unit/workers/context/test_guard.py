from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ContextLengthError
from tests.unit.workers.context.histories import (
    REQUESTS,
    FixedCalibration,
    ScriptedSummaries,
    a_round,
    assistant,
    stored,
    user,
)
from workers.context.budget import Budget
from workers.context.cuts import MARK, MAX_CHARS
from workers.context.guard import ContextGuard, Fitted
from workers.context.llm_compact import Summarize, SummaryRefusedError
from workers.context.messages import ImagePart, Message
from workers.context.meter import TokenMeter
from workers.context.pins import pinned_messages
from workers.context.rounds import split_units
from workers.context.summary import HEADING, summary_message
from workers.context.truncate import is_protected
from workers.model.values import ModelRequest, ModelTarget, ToolSchema, Usage

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


def meter() -> TokenMeter:
    return TokenMeter(FixedCalibration())


def measure(given_request: ModelRequest) -> int:
    return meter().measure(given_request)


async def fit(given_request: ModelRequest, summarize: Summarize | None = None) -> Fitted:
    return await ContextGuard(meter(), summarize).fit(given_request, hint="react_iteration")


async def test_within_the_budget_the_messages_are_untouched() -> None:
    given_request = request(SYSTEM, *stored(*TALK), QUERY)
    fitted = await fit(given_request, ScriptedSummaries().summarize)
    assert fitted.request.messages is given_request.messages
    assert fitted.compactions == ()
    assert given_request.max_tokens is None


async def test_answer_gets_what_the_prompt_leaves() -> None:
    assert (await fit(request(SYSTEM, QUERY))).request.max_tokens == 4_000
    small = replace(request(SYSTEM, QUERY), target=target(max_output_tokens=7_990))
    prompt_tokens = meter().measure(small)
    assert (await fit(small)).request.max_tokens == 8_000 - prompt_tokens


async def test_smaller_limit_of_the_caller_is_kept() -> None:
    assert (await fit(replace(request(QUERY), max_tokens=7))).request.max_tokens == 7


async def test_history_is_summarized_first() -> None:
    summaries = ScriptedSummaries()
    history = stored(*TALK * 15)
    work = a_round("found")
    given_request = request(SYSTEM, *history, QUERY, *work)
    fitted = await fit(given_request, summaries.summarize)
    kept = fitted.request.messages
    (compaction,) = fitted.compactions
    until = compaction.until_position
    assert until is not None
    summary = summary_message("What was said before.", position=until)
    assert kept == (SYSTEM, summary, *history[until:], QUERY, *work)
    assert len(history) - until >= 4
    assert summaries.asked == [list(history[:until])]
    assert summaries.hints == ["general"]
    assert (compaction.layer, compaction.method) == ("guard", "llm")
    assert (compaction.hint, compaction.purpose) == ("general", "loop")
    assert (compaction.original_messages, compaction.kept_messages) == (34, len(kept))
    assert compaction.summary == "What was said before."
    assert compaction.replaced == ()
    assert compaction.tokens_before == meter().measure(given_request)
    assert measure(fitted.request) <= compaction.tokens_after <= 2_000
    assert "over the budget of 4000" in compaction.reason


async def test_work_is_summarized_where_the_history_is_not_enough() -> None:
    summaries = ScriptedSummaries()
    rounds = [a_round("y " * 1_200, name=f"c{number}") for number in range(9)]
    work = [message for one in rounds for message in one]
    fitted = await fit(request(SYSTEM, *stored(*TALK * 5), QUERY, *work), summaries.summarize)
    history, compaction = fitted.compactions
    assert history.until_position is not None
    assert (compaction.hint, compaction.until_position) == ("react_iteration", None)
    assert compaction.replaced == tuple(range(1, len(compaction.replaced) + 1))
    rest = tuple(work[len(compaction.replaced) :])
    assert len(rest) >= 4
    assert fitted.request.messages[-len(rest) - 2 :] == (
        QUERY,
        summary_message("What was said before."),
        *rest,
    )
    assert compaction.original_messages == history.kept_messages
    assert compaction.tokens_before == history.tokens_after


async def test_earlier_summary_is_replaced_not_kept_beside_the_new_one() -> None:
    summaries = ScriptedSummaries("newer")
    earlier = summary_message("older", position=7)
    later = tuple(replace(item, position=item.position + 7) for item in stored(*TALK * 15))  # type: ignore[operator]
    fitted = await fit(request(SYSTEM, earlier, *later, QUERY), summaries.summarize)
    assert summaries.asked[0][0] is earlier
    heads = [item for item in fitted.request.messages if HEADING in item.text]
    assert [item.text for item in heads] == [f"{HEADING}\nnewer"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SummaryRefusedError("the model was away"), "the model was away"),
        ("", "the summary was empty"),
        ("long " * 20_000, "longer than what it replaces"),
    ],
)
async def test_without_a_usable_summary_the_oldest_are_left_out(
    text: str | Exception,
    reason: str,
) -> None:
    earlier = summary_message("older", position=7)
    history = stored(*TALK * 15)
    fitted = await fit(
        request(SYSTEM, earlier, *history, QUERY),
        ScriptedSummaries(text).summarize,
    )
    kept = fitted.request.messages
    (compaction,) = fitted.compactions
    until = compaction.until_position or 0
    assert kept == (SYSTEM, earlier, *history[until:], QUERY)
    assert (compaction.method, compaction.summary) == ("truncate", "older")
    assert reason in compaction.reason
    assert measure(fitted.request) <= 2_000


async def test_request_for_a_summary_never_asks_for_one() -> None:
    summaries = ScriptedSummaries()
    for_summary = replace(request(SYSTEM, *TALK * 15, QUERY), purpose="compaction")
    fitted = await fit(for_summary, summaries.summarize)
    assert summaries.asked == []
    assert measure(fitted.request) <= 4_000


async def test_pinned_messages_are_never_summarized() -> None:
    summaries = ScriptedSummaries()
    rounds = [a_round("y " * 500, name=f"c{number}") for number in range(9)]
    pin = injection("mind this")
    work = (*rounds[0], pin, *(message for one in rounds[1:] for message in one))
    fitted = await fit(request(SYSTEM, QUERY, *work), summaries.summarize)
    assert pin in fitted.request.messages
    assert all(pin not in asked for asked in summaries.asked)


async def test_reported_size_counts_for_more_than_the_estimate() -> None:
    given_request = request(SYSTEM, *stored(*TALK * 2), QUERY)
    calibration = FixedCalibration()
    known = TokenMeter(calibration)
    known.observe(given_request, Usage(input_tokens=3_990, output_tokens=5))
    longer = replace(given_request, messages=(*given_request.messages, *a_round("x " * 50)))
    fitted = await ContextGuard(known, None).fit(longer, hint="general")
    assert fitted.compactions[0].tokens_before > 4_000
    assert len(fitted.request.messages) < len(longer.messages)


async def test_lower_limit_compacts_what_is_within_the_budget() -> None:
    given_request = request(SYSTEM, *stored(*TALK * 5), QUERY)
    fitted = await ContextGuard(meter(), None).fit(
        given_request,
        hint="general",
        limit_tokens=1_000,
    )
    assert measure(fitted.request) <= 1_000


async def test_tool_schemas_are_part_of_the_request() -> None:
    large = replace(TOOL, description="x" * 10_000)
    history = stored(*TALK * 7)
    with_tools = (await fit(request(SYSTEM, *history, QUERY, tools=(large,)))).request.messages
    without = (await fit(request(SYSTEM, *history, QUERY, tools=()))).request.messages
    assert len(with_tools) < len(without)


@pytest.mark.parametrize("pinned", [True, False])
async def test_long_message_is_cut_though_all_fits(pinned: bool) -> None:  # noqa: FBT001
    long = user("x" * 60_000, pinned=pinned)
    wide = replace(request(SYSTEM, long), target=target(128_000, 64_000))
    fitted = await fit(wide)
    cut = fitted.request.messages[1]
    (compaction,) = fitted.compactions
    assert len(cut.text) == MAX_CHARS
    assert cut.text.endswith(MARK)
    assert cut.pinned is pinned
    assert "more than 50000 characters" in compaction.reason
    assert "budget" not in compaction.reason
    assert (compaction.original_messages, compaction.kept_messages) == (2, 2)


async def test_query_over_the_budget_keeps_head_and_tail() -> None:
    long = replace(QUERY, content="head" + "漢" * 20_000 + "tail")
    fitted = await fit(request(SYSTEM, *stored(*TALK), long))
    query = fitted.request.messages[-1]
    (compaction,) = fitted.compactions
    assert query.text.startswith("head")
    assert query.text.endswith("tail")
    assert MARK in query.text
    assert query.pinned
    assert fitted.request.messages[0] is SYSTEM
    assert compaction.tokens_after <= 4_000
    assert "beginning and end" in compaction.reason


async def test_query_over_the_budget_leaves_room_for_the_work() -> None:
    long = replace(QUERY, content="漢" * 20_000)
    looked = a_round("found " * 100)
    assert (await fit(request(SYSTEM, long, *looked))).request.messages[-2:] == looked


async def test_injections_lose_their_pin_before_the_query_is_cut() -> None:
    old = [injection(f"{number} " + "x" * 4_000) for number in range(5)]
    messages = (SYSTEM, QUERY, *old[:4], *a_round("y " * 2_000), old[4])
    fitted = await fit(request(*messages))
    kept = fitted.request.messages
    assert fitted.compactions[0].unpinned == 3
    assert kept == (SYSTEM, QUERY, old[3], *messages[-3:])
    assert all(message.pinned for message in old)


async def test_newest_tool_results_are_cut_rather_than_left_out() -> None:
    asked, small, large = a_round("small", "begin" + "x" * 40_000 + "end")
    old = a_round("old " * 800, name="old")
    fitted = await fit(request(SYSTEM, QUERY, *old, asked, small, large))
    kept = fitted.request.messages
    assert kept[:4] == (SYSTEM, QUERY, asked, small)
    assert kept[4].text.startswith("begin")
    assert kept[4].text.endswith("end")
    assert kept[4].tool_call_id == large.tool_call_id
    assert "newest tool results" in fitted.compactions[0].reason


async def test_fixed_parts_over_the_budget_leave_some_room() -> None:
    tools = (replace(TOOL, description="x" * 25_000),)
    history = stored(user("q " * 300), assistant("a " * 300))
    fitted = await fit(request(SYSTEM, *history, QUERY, tools=tools))
    assert fitted.request.messages[0] is SYSTEM
    assert fitted.request.messages[-1] is QUERY
    assert fitted.request.max_tokens is not None
    assert 1_000 < fitted.request.max_tokens < 4_000


async def test_fixed_parts_over_the_window_fail_with_the_numbers() -> None:
    tools = (replace(TOOL, description="x" * 40_000),)
    with pytest.raises(ContextLengthError) as caught:
        await fit(request(SYSTEM, QUERY, tools=tools))
    sentence = caught.value.message
    for fact in ("model-1", "8000 tokens", "about 7,", "1 tools 80", "that must stay 7"):
        assert fact in sentence


async def test_images_that_must_stay_over_the_window_fail() -> None:
    images = Message(role="user", content=(ImagePart(url="u"),) * 20, pinned=True, origin="query")
    with pytest.raises(ContextLengthError):
        await fit(request(images))


@pytest.mark.parametrize("pinned_words", range(3_700, 3_940, 20))
async def test_small_history_makes_room_for_what_must_stay(pinned_words: int) -> None:
    """The pinned messages fit by themselves, but not with even an eighth of history."""
    history = stored(*(user("q " * 90), assistant("a " * 90)) * 2)
    late = injection("word " * pinned_words)
    fitted = await fit(request(SYSTEM, *history, QUERY, late))
    assert measure(fitted.request) <= 4_000
    assert late in fitted.request.messages


@given(
    REQUESTS,
    st.integers(1_000, 20_000),
    st.integers(1, 20_000),
    st.sampled_from([None, "Summed up.", "long " * 3_000, SummaryRefusedError("no")]),
)
async def test_properties(
    messages: tuple[Message, ...],
    context_size: int,
    max_output_tokens: int,
    summary: str | Exception | None,
) -> None:
    given_request = ModelRequest(
        target=target(context_size, max_output_tokens), messages=messages, tools=(TOOL,)
    )
    budget = Budget.of(given_request.target)
    copies = tuple(replace(message) for message in messages)
    counter = meter().counter(given_request.target)
    fixed_tokens = counter.messages(messages[:1]) + counter.tools((TOOL,))
    summarize = None if summary is None else ScriptedSummaries(summary).summarize
    try:
        fitted = await fit(given_request, summarize)
    except ContextLengthError:
        assert fixed_tokens > budget.usable // 2
        return
    kept = fitted.request.messages
    tokens = measure(fitted.request)

    assert messages == copies
    assert kept[0] is messages[0]
    assert (
        tokens <= budget.usable
        or all(map(is_protected, split_units(kept)))
        or fixed_tokens + 1_000 > budget.usable
    )
    assert tokens + (fitted.request.max_tokens or 0) <= context_size
    assert next(item for item in kept if item.role != "system").role == "user"
    assert (fitted.compactions == ()) is (kept is messages)
    for unit in split_units(kept):
        results = [message.tool_call_id for message in unit[1:]]
        assert results == [call.id for call in unit[0].tool_calls]
    assert [message.origin for message in kept].count("query") == 1
    assert_order_kept(kept, messages)
    newest_injection = [item for item in messages if item.origin == "injection"][-1:]
    pinned = pinned_messages(kept)
    assert [item.origin for item in pinned][-1:] == (
        ["injection"] if newest_injection else ["query"]
    )
    if not any(MARK in message.text for message in pinned):
        assert next(message for message in messages if message.origin == "query") in pinned
        assert all(message in pinned for message in newest_injection)


def assert_order_kept(kept: tuple[Message, ...], given: tuple[Message, ...]) -> None:
    """Check that what is still there in its own words is in its old order."""
    places = {id(message): at for at, message in enumerate(given)}
    found = [places[id(message)] for message in kept if id(message) in places]
    assert found == sorted(found)
    assert sum(HEADING in message.text for message in kept) <= 2


@given(REQUESTS, st.integers(1_000, 20_000))
async def test_fitting_again_changes_nothing(
    messages: tuple[Message, ...],
    context_size: int,
) -> None:
    given_request = ModelRequest(target=target(context_size, 4_000), messages=messages)
    try:
        fitted = await fit(given_request)
    except ContextLengthError:
        return
    if measure(fitted.request) <= Budget.of(given_request.target).usable:
        again = await fit(fitted.request)
        assert again.request.messages == fitted.request.messages
        assert again.compactions == ()


@pytest.mark.parametrize("letter", ["x", "7", "字", "🦉", "\u200d", "\0", "\ud800", "\n"])
async def test_ten_megabytes_of_one_letter_are_cut(letter: str) -> None:
    huge = letter * (10_000_000 // len(letter.encode("utf-8", "surrogatepass")))
    query = replace(QUERY, content=huge)
    work = a_round(huge, huge)
    given_request = request(SYSTEM, *stored(user(huge), assistant(huge)), query, *work)
    fitted = await fit(given_request, ScriptedSummaries().summarize)
    assert measure(fitted.request) <= 4_000
    sent = next(item for item in fitted.request.messages if item.origin == "query")
    assert MARK in sent.text
    assert sent.text.startswith(letter)
