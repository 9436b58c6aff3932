"""The script of the demo model: what it answers. It says of itself that it is no LLM.

It calls `calculator` for a calculation and `current_time` for a question for the time, if they
are offered; with the results, or without any, it answers in the language of the user. Asked for
a summary, it gives first sentences; told to call a tool, it fills in what the tool requires.
"""

import json
import re
from collections.abc import Sequence

from demo.arithmetic import find_expression
from demo.clock_question import asks_for_time, find_timezone
from demo.forms import fill
from demo.languages import CHINESE, JAPANESE, Language, detect_language
from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from demo.summary import read_record, summarize
from demo.tool_work import (
    ToolWork,
    names_called_since_last_user,
    read_question,
    read_work,
)

MODEL = "turnmill-demo"

CALCULATOR = "calculator"
CURRENT_TIME = "current_time"
# About the pace of a person who reads along.
FIRST_BYTE_S = 0.15
BETWEEN_CHUNKS_S = 0.02
MAX_ECHO_CHARS = 200
MAX_RESULT_CHARS = 500
# How current_time writes, and how calculator does.
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+Z-]+")
NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)")


def respond(request: ChatRequest) -> Reply:
    """Return the demo model's reply."""
    if record := read_record(request):
        return _paced(Reply(text=summarize(*record)))
    question = read_question(request)
    calls = _choose_calls(request, question)
    if calls:
        return _paced(Reply(tool_calls=calls))
    language = detect_language(question)
    return _paced(Reply(text=_write_answer(request, question, language)))


def _paced(reply: Reply) -> Reply:
    return Reply(
        text=reply.text,
        tool_calls=reply.tool_calls,
        first_byte_s=FIRST_BYTE_S,
        between_chunks_s=BETWEEN_CHUNKS_S,
    )


def _choose_calls(request: ChatRequest, question: str) -> tuple[ToolCall, ...]:
    if request.tool_choice == "none":
        return ()
    forced = [tool for tool in request.tools if tool.name == request.tool_choice]
    if forced:
        filled = fill(forced[0].parameters)
        return (ToolCall(name=forced[0].name, arguments=json.dumps(filled)),)
    usable = set(request.tool_names) - names_called_since_last_user(request)
    calls = []
    if CALCULATOR in usable and (expression := find_expression(question)):
        calls.append(ToolCall(name=CALCULATOR, arguments={"expression": expression}))
    if CURRENT_TIME in usable and asks_for_time(question):
        zone = find_timezone(question)
        calls.append(ToolCall(name=CURRENT_TIME, arguments={"timezone": zone} if zone else {}))
    return tuple(calls)


def _write_answer(request: ChatRequest, question: str, language: Language) -> str:
    work = read_work(request)
    if work:
        return "\n".join([language.disclaimer, *_describe(work, language)])
    space = "" if language in (CHINESE, JAPANESE) else " "
    return space.join(
        [
            language.disclaimer,
            language.understood.format(text=_shorten(question, MAX_ECHO_CHARS)),
            language.seen.format(count=len(request.messages)),
            language.hint,
        ],
    )


def _describe(work: Sequence[ToolWork], language: Language) -> list[str]:
    return [_describe_one(item, language) for item in work]


def _describe_one(item: ToolWork, language: Language) -> str:
    result = _shorten(item.result, MAX_RESULT_CHARS)
    if item.name == CALCULATOR and item.expression:
        if NUMBER.fullmatch(result):
            return f"{item.expression} = {result}"
        return language.failed.format(tool=item.name, result=result)
    if item.name == CURRENT_TIME:
        template = language.time if TIMESTAMP.fullmatch(result) else language.failed
        return template.format(time=result, tool=item.name, result=result)
    return language.result.format(tool=item.name, result=result)


def _shorten(text: str, max_chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"
