"""Recognising a question for the time or the date, and the zone that is meant."""

import re

QUESTION = re.compile(
    # English
    r"what(?:'s| is)? (?:the )?(?:current )?(?:time|date)|what day is|current (?:time|date)"
    r"|time is it|today's date|time in [a-z]"
    # German
    r"|wie spät|uhrzeit|wie ?viel uhr|welche[rs]? (?:datum|tag)|aktuelle zeit"
    # French
    r"|quelle heure|heure (?:est-il|actuelle)|quelle (?:est la )?date|quel jour"
    # Spanish
    r"|qu[eé] hora|hora (?:es|actual)|qu[eé] fecha|fecha de hoy|qu[eé] día"
    # Russian
    r"|который (?:сейчас )?час|сколько (?:сейчас )?времени|какое (?:сегодня|сейчас) (?:число|время)"
    r"|текущ\w+ (?:время|дат)|какой сегодня день|какая сегодня дата"
    # Japanese
    r"|何時|時刻|今日の日付|何日|何曜日|日時"
    # Chinese
    r"|几点|幾點|几号|幾號|星期几|星期幾|(?:现在|現在|当前|當前)的?(?:时间|時間|日期)|今天的?日期"
    # Korean
    r"|몇 ?시|현재 ?(?:시간|시각|날짜)|오늘 ?날짜|며칠|무슨 ?요일"
    # Arabic
    r"|كم الساعة|الساعة (?:كم|الآن)|الوقت|التاريخ|ما اليوم",
    re.IGNORECASE,
)
ZONE = re.compile(
    r"\b(?:Africa|America|Asia|Atlantic|Australia|Europe|Pacific)/[A-Z][A-Za-z_/-]+|\bUTC\b",
)
CITIES = {
    "Africa/Cairo": "cairo|kairo|le caire|el cairo|каир|カイロ|开罗|카이로|القاهرة",
    "America/New_York": "new york|nueva york|нью-йорк|ニューヨーク|纽约|紐約|뉴욕|نيويورك",
    "Asia/Seoul": "seoul|séoul|seúl|сеул|ソウル|首尔|首爾|서울|سيول|سول",
    "Asia/Shanghai": "beijing|peking|pékin|pekín|shanghai|пекин|шанха|北京|上海|베이징|상하이|بكين",
    "Asia/Tokyo": "tokyo|tokio|токио|東京|东京|도쿄|طوكيو",
    "Europe/Berlin": "berlin|berlín|берлин|ベルリン|柏林|베를린|برلين",
    "Europe/London": "london|londres|лондон|ロンドン|伦敦|倫敦|런던|لندن",
    "Europe/Madrid": "madrid|мадрид|マドリード|马德里|馬德里|마드리드|مدريد",
    "Europe/Moscow": "moscow|moskau|moscou|moscú|москв|モスクワ|莫斯科|모스크바|موسكو",
    "Europe/Paris": "paris|parís|париж|パリ|巴黎|파리|باريس",
}
CITY_PATTERNS = {zone: re.compile(names, re.IGNORECASE) for zone, names in CITIES.items()}


def asks_for_time(text: str) -> bool:
    """Tell whether a text asks for the time or the date."""
    return bool(QUESTION.search(text))


def find_timezone(text: str) -> str | None:
    """Return the IANA zone that a text names, itself or by a city; None if it names none."""
    if zone := ZONE.search(text):
        return zone[0]
    for name, cities in CITY_PATTERNS.items():
        if cities.search(text):
            return name
    return None
