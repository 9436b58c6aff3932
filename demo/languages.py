"""The languages of the demo model: how each is recognised, and what the model says in it."""

# ruff: noqa: RUF001 - letters of other scripts are meant to be what they are

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language."""

    code: str
    # First sentence of every answer.
    disclaimer: str
    # Filled with `text`.
    understood: str
    # Filled with `count`.
    seen: str
    hint: str
    # Filled with `time`, as the tool gave it.
    time: str
    # Filled with `tool` and `result`, as is the next one.
    result: str
    failed: str


ENGLISH = Language(
    code="en",
    disclaimer="I am the scripted demo model of Turnmill, not an LLM.",
    understood="You wrote: “{text}”.",
    seen="Messages I can see in this request: {count}.",
    hint="Give me a calculation such as 17 * 23, or ask me for the time, to see a tool at work.",
    time="The current date and time is {time}.",
    result="The tool {tool} returned: {result}",
    failed="The tool {tool} failed: {result}",
)
GERMAN = Language(
    code="de",
    disclaimer="Ich bin das Demo-Modell von Turnmill mit festem Drehbuch, kein LLM.",
    understood="Du hast geschrieben: „{text}“.",
    seen="Nachrichten, die ich in dieser Anfrage sehe: {count}.",
    hint="Gib mir eine Rechnung wie 17 * 23 oder frag nach der Uhrzeit, dann nutze ich ein"
    " Werkzeug.",
    time="Datum und Uhrzeit sind jetzt {time}.",
    result="Das Werkzeug {tool} ergab: {result}",
    failed="Das Werkzeug {tool} ist gescheitert: {result}",
)
FRENCH = Language(
    code="fr",
    disclaimer="Je suis le modèle de démonstration scénarisé de Turnmill, pas un LLM.",
    understood="Vous avez écrit : « {text} ».",
    seen="Messages que je vois dans cette requête : {count}.",
    hint="Donnez-moi un calcul comme 17 * 23, ou demandez l'heure, pour voir un outil à l'œuvre.",
    time="La date et l'heure actuelles sont {time}.",
    result="L'outil {tool} a renvoyé : {result}",
    failed="L'outil {tool} a échoué : {result}",
)
SPANISH = Language(
    code="es",
    disclaimer="Soy el modelo de demostración con guion de Turnmill, no un LLM.",
    understood="Has escrito: «{text}».",
    seen="Mensajes que veo en esta petición: {count}.",
    hint="Dame un cálculo como 17 * 23, o pregúntame la hora, para ver una herramienta en acción.",
    time="La fecha y la hora actuales son {time}.",
    result="La herramienta {tool} devolvió: {result}",
    failed="La herramienta {tool} falló: {result}",
)
RUSSIAN = Language(
    code="ru",
    disclaimer="Я демонстрационная модель Turnmill со сценарием, а не LLM.",
    understood="Вы написали: «{text}».",
    seen="Сообщений в этом запросе: {count}.",
    hint="Дайте мне пример вроде 17 * 23 или спросите, который час, и я вызову инструмент.",
    time="Текущие дата и время: {time}.",
    result="Инструмент {tool} вернул: {result}",
    failed="Инструмент {tool} завершился ошибкой: {result}",
)
JAPANESE = Language(
    code="ja",
    disclaimer="私は台本どおりに動く Turnmill のデモモデルで、LLM ではありません。",
    understood="あなたの入力：「{text}」。",
    seen="このリクエストで見えるメッセージの数：{count}。",
    hint="17 * 23 のような計算か、現在の時刻を聞いてみてください。ツールを使います。",
    time="現在の日時は {time} です。",
    result="ツール {tool} の結果：{result}",
    failed="ツール {tool} は失敗しました：{result}",
)
CHINESE = Language(
    code="zh",
    disclaimer="我是 Turnmill 的脚本演示模型，不是 LLM。",
    understood="您写道：“{text}”。",
    seen="我在此请求中看到的消息数：{count}。",
    hint="给我一个算式，例如 17 * 23，或者问我现在几点，就能看到工具调用。",
    time="当前日期和时间是 {time}。",
    result="工具 {tool} 返回：{result}",
    failed="工具 {tool} 失败：{result}",
)
KOREAN = Language(
    code="ko",
    disclaimer="저는 대본대로 동작하는 Turnmill 데모 모델이며 LLM이 아닙니다.",
    understood="입력하신 내용: “{text}”.",
    seen="이 요청에서 보이는 메시지 수: {count}.",
    hint="17 * 23 같은 계산이나 현재 시간을 물어보시면 도구를 사용합니다.",
    time="현재 날짜와 시간은 {time}입니다.",
    result="도구 {tool}의 결과: {result}",
    failed="도구 {tool} 실패: {result}",
)
ARABIC = Language(
    code="ar",
    disclaimer="أنا نموذج Turnmill التجريبي المبرمج بنص ثابت، ولست LLM.",
    understood="لقد كتبت: «{text}».",
    seen="عدد الرسائل التي أراها في هذا الطلب: {count}.",
    hint="أعطني عملية حسابية مثل 17 * 23 أو اسألني عن الوقت لترى أداة تعمل.",
    time="التاريخ والوقت الآن: {time}.",
    result="نتيجة الأداة {tool}: {result}",
    failed="فشلت الأداة {tool}: {result}",
)
LANGUAGES = (
    ENGLISH,
    GERMAN,
    FRENCH,
    SPANISH,
    RUSSIAN,
    JAPANESE,
    CHINESE,
    KOREAN,
    ARABIC,
)

# Kana before Han: Japanese has both.
SCRIPTS = (
    (re.compile(r"[\u3040-\u30ff]"), JAPANESE),
    (re.compile(r"[\uac00-\ud7a3]"), KOREAN),
    (re.compile(r"[\u4e00-\u9fff]"), CHINESE),
    (re.compile(r"[\u0400-\u04ff]"), RUSSIAN),
    (re.compile(r"[\u0600-\u06ff]"), ARABIC),
)
# Small words that the others do not have, and letters of one language only.
WORDS = (
    (
        re.compile(
            r"\b(ist|sind|und|der|die|das|wie|was|wer|wann|warum|nicht|ich|du|mir|bitte|ein|eine"
            r"|viel|hallo|welche[rs]?|mal|kannst|spät|uhr)\b|ß",
        ),
        GERMAN,
    ),
    (
        re.compile(
            r"\b(est|sont|et|le|les|des|une?|je|vous|quel(le)?s?|combien|bonjour|pourquoi|comment"
            r"|merci|heure|fois|pas|moi)\b|[çœ]|\b[cldqn]'",
        ),
        FRENCH,
    ),
    (
        re.compile(
            r"\b(es|son|y|el|los|las|una?|qué|que|cuál|cuánto|cuántos|hola|por|para|cómo|gracias"
            r"|hora|dime|más)\b|[¿¡ñ]",
        ),
        SPANISH,
    ),
    (
        re.compile(
            r"\b(is|are|and|the|what|who|when|why|how|not|you|me|please|an?|of|it|hello|hi)\b",
        ),
        ENGLISH,
    ),
)


def detect_language(text: str) -> Language:
    """Return the language of a text; English if nothing tells."""
    # The script that has most letters, so that one foreign name does not decide.
    counts = [(len(script.findall(text)), language) for script, language in SCRIPTS]
    most, language = max(counts, key=lambda item: item[0])
    kana = counts[0][0]
    if kana and language is CHINESE:
        return JAPANESE
    words = [(len(list(known.finditer(text.lower()))), spoken) for known, spoken in WORDS]
    most_words, spoken = max(words, key=lambda item: item[0])
    if most > most_words:
        return language
    return spoken if most_words else ENGLISH
