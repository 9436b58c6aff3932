"""What the demo model says and which tools it calls, in each of its languages."""

# ruff: noqa: RUF001 - letters of other scripts are meant to be what they are

import json
from typing import Any

import pytest

from demo.arithmetic import find_expression
from demo.clock_question import find_timezone
from demo.languages import LANGUAGES, detect_language
from demo.protocol import ChatRequest, parse_request
from demo.reply import Reply
from demo.script import respond

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("calculator", "current_time")
]
GREETINGS = {
    "en": "Hello, who are you?",
    "de": "Hallo, wie geht es dir?",
    "fr": "Bonjour, comment allez-vous ?",
    "es": "Hola, ¿cómo estás?",
    "ru": "Привет, как дела?",
    "ja": "こんにちは、元気ですか。",
    "zh": "你好，你是谁？",
    "ko": "안녕하세요, 누구세요?",
    "ar": "مرحبا، من أنت؟",
}
SUMS = {
    "en": "What is 17 * 23?",
    "de": "Wie viel ist 17 mal 23?",
    "fr": "Combien font 17 × 23 ?",
    "es": "¿Cuánto es 17 por 23?",
    "ru": "Сколько будет 17 умножить на 23?",
    "ja": "１７かける２３はいくつですか",
    "zh": "17乘以23等于多少？",
    "ko": "17 곱하기 23은 얼마예요?",
    "ar": "كم يساوي ١٧ × ٢٣؟",
}
TIMES = {
    "en": "What time is it in Tokyo?",
    "de": "Wie spät ist es in Tokio?",
    "fr": "Quelle heure est-il à Tokyo ?",
    "es": "¿Qué hora es en Tokio?",
    "ru": "Который час в Токио?",
    "ja": "東京は今何時ですか",
    "zh": "东京现在几点？",
    "ko": "도쿄는 지금 몇 시예요?",
    "ar": "كم الساعة الآن في طوكيو؟",
}
DISCLAIMERS = {language.code: language.disclaimer for language in LANGUAGES}


def ask(*messages: dict[str, Any], with_tools: bool = True, **extra: object) -> ChatRequest:
    body: dict[str, Any] = {"model": "turnmill-demo", "messages": list(messages)} | extra
    if with_tools:
        body["tools"] = TOOLS
    return parse_request(json.dumps(body).encode())


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def round_of(reply: Reply, *results: str) -> list[dict[str, Any]]:
    calls = [
        {
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments_json},
        }
        for index, call in enumerate(reply.tool_calls)
    ]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        *(
            {"role": "tool", "tool_call_id": f"call_{index}", "content": result}
            for index, result in enumerate(results)
        ),
    ]


def calls_of(reply: Reply) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments_json)) for call in reply.tool_calls]


@pytest.mark.parametrize("code", DISCLAIMERS)
def test_greeting_is_answered_in_its_language(code: str) -> None:
    reply = respond(ask({"role": "system", "content": "Be kind."}, user(GREETINGS[code])))

    assert not reply.tool_calls
    assert isinstance(reply.text, str)
    assert reply.text.startswith(DISCLAIMERS[code])
    assert "LLM" in DISCLAIMERS[code]
    assert GREETINGS[code] in reply.text
    assert "2" in reply.text


@pytest.mark.parametrize("code", DISCLAIMERS)
def test_calculation_is_given_to_the_tool_and_its_result_used(code: str) -> None:
    question = user(SUMS[code])

    asked = respond(ask(question))
    answer = respond(ask(question, *round_of(asked, "391")))

    assert calls_of(asked) == [("calculator", {"expression": "17 * 23"})]
    assert answer.text == f"{DISCLAIMERS[code]}\n17 * 23 = 391"


@pytest.mark.parametrize("code", DISCLAIMERS)
def test_time_is_asked_of_the_tool_and_its_result_used(code: str) -> None:
    question = user(TIMES[code])

    asked = respond(ask(question))
    answer = respond(ask(question, *round_of(asked, "2026-01-02T03:04:05+09:00")))

    assert calls_of(asked) == [("current_time", {"timezone": "Asia/Tokyo"})]
    assert isinstance(answer.text, str)
    assert answer.text.startswith(DISCLAIMERS[code])
    assert "2026-01-02T03:04:05+09:00" in answer.text


def test_both_tools_are_called_at_once() -> None:
    asked = respond(ask(user("What time is it, and what is 2 + 2?")))

    assert calls_of(asked) == [("calculator", {"expression": "2 + 2"}), ("current_time", {})]


def test_tools_that_are_not_offered_or_not_wanted_are_not_called() -> None:
    assert not respond(ask(user("2 + 2"), with_tools=False)).tool_calls
    assert not respond(ask(user("2 + 2"), tool_choice="none")).tool_calls


def test_failed_tool_is_said_to_have_failed() -> None:
    question = user("What is 1 / 0?")

    answer = respond(ask(question, *round_of(respond(ask(question)), "Division by zero")))

    assert answer.text == f"{DISCLAIMERS['en']}\nThe tool calculator failed: Division by zero"


def test_earlier_turns_do_not_count() -> None:
    first = user("What is 2 + 2?")
    history = [first, *round_of(respond(ask(first)), "4"), {"role": "assistant", "content": "4."}]

    assert calls_of(respond(ask(*history, user("And 3 + 3?")))) == [
        ("calculator", {"expression": "3 + 3"}),
    ]
    answer = respond(ask(*history, user("Thanks")))
    assert isinstance(answer.text, str)
    assert "= 4" not in answer.text


def test_injected_message_is_worked_on_and_all_results_are_used() -> None:
    first = user("What is 2 + 2?")
    injected = user("[The user interrupts with a new message:]\nAnd what is 3 + 3?")
    history = [first, *round_of(respond(ask(first)), "4"), injected]

    asked = respond(ask(*history))
    second = [
        {**message, "tool_call_id": "call_9"} if message["role"] == "tool" else message
        for message in round_of(asked, "6")
    ]
    second[0]["tool_calls"][0]["id"] = "call_9"
    answer = respond(ask(*history, *second))

    assert calls_of(asked) == [("calculator", {"expression": "3 + 3"})]
    assert answer.text == f"{DISCLAIMERS['en']}\n2 + 2 = 4\n3 + 3 = 6"


def test_synthesis_is_written_from_the_record() -> None:
    record = (
        "Request:\nWie viel ist 17 mal 23 und wie spät ist es?\n\nBrief answer:\nFertig.\n\n"
        "Record of the work:\n"
        'Call: calculator({"expression": "17 * 23"})\nCall: current_time({})\nCall: look_up({})\n'
        "Result: 391\nResult: 2026-01-02T03:04:05+00:00\nResult: two\nlines"
    )

    answer = respond(ask(user(record), with_tools=False))

    assert answer.text == (
        f"{DISCLAIMERS['de']}\n17 * 23 = 391\n"
        "Datum und Uhrzeit sind jetzt 2026-01-02T03:04:05+00:00.\n"
        "Das Werkzeug look_up ergab: two lines"
    )


def test_long_message_is_echoed_in_part() -> None:
    answer = respond(ask(user("word " * 10_000)))

    assert len(answer.text) < 600


@pytest.mark.parametrize(
    "text",
    [
        "The meeting is on 2024-05-01.",
        "We are open 24/7.",
        "Call 555-1234",
        "It is 10:30 now",
        "version 1.2.3",
        "See (1) and (2)",
        "-5 degrees",
        "5*(2+3",
        "((((" * 1_000,
        "I have 3 apples and 4 pears",
    ],
)
def test_text_without_a_calculation(text: str) -> None:
    assert find_expression(text) is None


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("17*23", "17*23"),
        ("1,000 + 2,500", "1000 + 2500"),
        ("Was ist 3,5 + 2?", "3.5 + 2"),
        ("2^10", "2**10"),
        ("10 : 2", "10 / 2"),
        ("12 × (3 + 4)", "12 * (3 + 4)"),
        ("sqrt(16) + 2 please", "sqrt(16) + 2"),
        ("24/7=", "24/7"),
    ],
)
def test_calculation_is_found(text: str, expression: str) -> None:
    assert find_expression(text) == expression


@pytest.mark.parametrize(
    ("text", "zone"),
    [("time in Europe/Rome", "Europe/Rome"), ("now in UTC?", "UTC"), ("what time is it", None)],
)
def test_zone_is_found(text: str, zone: str | None) -> None:
    assert find_timezone(text) == zone


def test_one_foreign_word_does_not_decide_the_language() -> None:
    assert detect_language("What does the word 量子 mean to you?").code == "en"
    assert detect_language("1234").code == "en"
