"""What the demo model makes of a record that it is asked to summarise: its own first words.

No model of language is at work: each line of the record is cut to its first sentence, and the
newest ones are kept.
"""

import re

from demo.protocol import ChatRequest

RECORD = re.compile(r"<record>\n(.*)\n</record>.*?(?:at most (\d+) words)?\W*\Z", re.DOTALL)
SPEAKER = re.compile(
    r"(?=^(?:User|Assistant|Tool result|Earlier summary|Part \d+ of \d+): )", re.MULTILINE
)
SENTENCE = re.compile(r"[^.!?。!?\n]*[.!?。!?]?")
MAX_SENTENCE_CHARS = 100
MAX_LINES = 20
MAX_WORDS = 200
# Of the record: what is longer would be no summary.
MAX_SHARE = 0.5


def read_record(request: ChatRequest) -> tuple[str, int] | None:
    """Return the record to summarise and the most words wanted; None if none is given."""
    found = RECORD.search(request.last_user_text)
    if found is None:
        return None
    return found[1], int(found[2] or MAX_WORDS)


def summarize(record: str, max_words: int) -> str:
    """Return the first sentences of the newest speakers, within the words and half the record."""
    lines = [_shorten(part) for part in SPEAKER.split(record) if part.strip()]
    kept: list[str] = []
    words, chars = 0, 0
    for line in reversed(lines[-MAX_LINES:]):
        words, chars = words + len(line.split()), chars + len(line)
        if kept and (words > max_words or chars > len(record) * MAX_SHARE):
            break
        kept.append(line)
    return "\n".join(reversed(kept))


def _shorten(part: str) -> str:
    speaker, colon, text = part.strip().partition(": ")
    if speaker == "Earlier summary":
        # Its lines are short already.
        return text.strip()
    sentence = SENTENCE.match(text or speaker)
    first = (sentence[0] if sentence else "")[:MAX_SENTENCE_CHARS]
    return f"{speaker}{colon}{first}" if text else first
