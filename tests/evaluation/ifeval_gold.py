"""Answers that follow IFEval's instructions, built from the instructions of a row alone.

The data set has no answers of its own. What is written here means nothing, but does what was asked: so many
sentences, these words, that ending. A row whose instructions contradict each other has no such answer.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle, islice
from string import ascii_lowercase
from typing import Any

# ruff: noqa: RUF001
LANGUAGES = {
    "ar": "الطقس اليوم جميل جدا ونحن جميعا ذاهبون إلى السوق",
    "bg": "Българският език е много хубав и всички деца го учат в училище след като станат на седем години",
    "bn": "আজ আবহাওয়া খুব ভালো এবং আমরা সবাই বাজারে যাচ্ছি",
    "de": "Heute ist das Wetter sehr schön und wir gehen alle zusammen auf den Markt",
    "fa": "امروز هوا بسیار خوب است و ما همه با هم به بازار می‌رویم",
    "fi": "Tänään sää on erittäin kaunis ja me kaikki menemme yhdessä torille",
    "gu": "આજે હવામાન ખૂબ સારું છે અને આપણે બધા બજારમાં જઈ રહ્યા છીએ",
    "hi": "आज मौसम बहुत अच्छा है और हम सब लोग बाजार जा रहे हैं",
    "it": "Oggi il tempo è molto bello e andiamo tutti insieme al mercato",
    "kn": "ಇಂದು ಹವಾಮಾನ ತುಂಬಾ ಚೆನ್ನಾಗಿದೆ ಮತ್ತು ನಾವು ಮಾರುಕಟ್ಟೆಗೆ ಹೋಗುತ್ತಿದ್ದೇವೆ",
    "ko": "오늘은 날씨가 매우 좋아서 우리는 모두 시장에 가고 있습니다",
    "mr": "आज हवामान खूप छान आहे आणि आम्ही सर्वजण बाजारात जात आहोत",
    "ne": "आज मौसम धेरै राम्रो छ र हामी सबै बजार जाँदैछौं",
    "pa": "ਅੱਜ ਮੌਸਮ ਬਹੁਤ ਵਧੀਆ ਹੈ ਅਤੇ ਅਸੀਂ ਸਾਰੇ ਬਾਜ਼ਾਰ ਜਾ ਰਹੇ ਹਾਂ",
    "pt": "Hoje o tempo está muito bom e nós vamos todos juntos ao mercado",
    "ru": "Сегодня очень хорошая погода и мы все вместе идём на рынок",
    "sw": "Leo hali ya hewa ni nzuri sana na sisi sote tunakwenda sokoni",
    "ta": "இன்று வானிலை மிகவும் நன்றாக உள்ளது நாங்கள் அனைவரும் சந்தைக்குச் செல்கிறோம்",
    "te": "ఈ రోజు వాతావరణం చాలా బాగుంది మరియు మేమంతా మార్కెట్‌కు వెళ్తున్నాము",
    "th": "วันนี้ อากาศ ดีมาก และ พวกเรา ทุกคน กำลัง ไป ตลาด ด้วยกัน",
    "ur": "آج موسم بہت اچھا ہے اور ہم سب بازار جا رہے ہیں",
    "vi": "Hôm nay trời rất đẹp và chúng tôi đang đi chợ cùng nhau",
}
ENGLISH = (
    "there was once a good old man who had many small things and would often go out to look for more of them "
    "because all his friends had told him that you should not stay at home with such fine days outside"
)


@dataclass
class Draft:
    """An answer in the making."""

    filler: list[str]
    """Words to fill lines with."""
    sentences: int = 1
    words: int = 0
    """At least so many."""
    most_words: int | None = None
    extras: list[str] = field(default_factory=list)
    """Put into the first sentence, word by word."""
    openings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Beginnings of lines that follow the text."""
    paragraphs: list[str] = field(default_factory=lambda: [""])
    """First words of the paragraphs."""
    divider: str = "\n\n"
    endings: list[str] = field(default_factory=list)
    wrap: list[Callable[[str], str]] = field(default_factory=list)

    def text(self) -> str:
        """The answer."""
        words = cycle(self.filler)
        count = max(self.words, 6 * self.sentences, 12)
        count = min(count, self.most_words or count)
        each = -(-count // self.sentences)
        main = [self._sentence(islice(words, each)) for _ in range(self.sentences)]
        main[0] = " ".join([*self.extras, main[0]])
        short = " ".join(self.filler[:3])
        paragraphs = [f"{first} {short}".strip() for first in self.paragraphs]
        paragraphs[0] = " ".join([self.paragraphs[0], *main]).strip()
        text = self.divider.join(paragraphs)
        listed = [f"{line} {short}" for line in self.lines]
        found = "\n".join([*self.openings, text, *listed, *self.endings])
        for wrapped in self.wrap:
            found = wrapped(found)
        return found

    @staticmethod
    def _sentence(words: Any) -> str:
        return " ".join(words).capitalize() + "!"  # ends a sentence even before a small letter


def follow(doc: dict[str, Any]) -> str:
    """An answer to a row."""
    demands = [
        (name.split(":")[1], {key: value for key, value in asked.items() if value is not None})
        for name, asked in zip(doc["instruction_id_list"], doc["kwargs"], strict=True)
    ]
    draft = Draft(_filler(demands))
    for name, asked in sorted(demands, key=lambda demand: ORDER.index(demand[0])):
        DEEDS[name](draft, asked)
    return draft.text()


def _filler(demands: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Words that no demand forbids."""
    words, forbidden = ENGLISH.split(), set[str]()
    for name, asked in demands:
        if name == "response_language":
            words = LANGUAGES[asked["language"]].split()
        forbidden |= {word.lower() for word in asked.get("forbidden_words", ())}
        if asked.get("let_relation") == "less than":
            forbidden.add(asked["letter"])
        if asked.get("relation") == "less than" and "keyword" in asked:
            forbidden.add(asked["keyword"])
    return [word for word in words if not any(part in word.lower() for part in forbidden)]


def _at_length(words: int, change: Callable[[str], str] | None = None) -> Callable[..., None]:
    """Long enough for its language to be found out."""

    def deed(draft: Draft, _: dict[str, Any]) -> None:
        draft.words = max(draft.words, words)
        draft.wrap += [change] if change else []

    return deed


def _two_answers(text: str) -> str:
    return f"{text}\n******\n{text} {text.split()[-1]}"


def _sentences(draft: Draft, asked: dict[str, Any]) -> None:
    if asked["relation"] == "at least":
        draft.sentences = max(draft.sentences, asked["num_sentences"])


def _words(draft: Draft, asked: dict[str, Any]) -> None:
    if asked["relation"] == "at least":
        draft.words = max(draft.words, asked["num_words"] + draft.sentences)
    else:
        draft.most_words = asked["num_words"] - 1


def _holding(letter: str, draft: Draft) -> str:
    """A word with a letter; the checker draws one where it is asked for a sign."""
    words = [word for word in draft.filler if letter in word]
    return (words or [letter if letter.isalpha() else ascii_lowercase])[0]


def _often(word: str, count: str, relation: str = "relation") -> Callable[[Draft, dict[str, Any]], None]:
    def deed(draft: Draft, asked: dict[str, Any]) -> None:
        if asked[relation] == "at least":
            wanted = asked.get(word, word)
            draft.extras += [_holding(wanted, draft) if word == "letter" else wanted] * asked[count]

    return deed


def _paragraph_words(draft: Draft, asked: dict[str, Any]) -> None:
    draft.paragraphs = [""] * asked["num_paragraphs"]
    draft.paragraphs[asked["nth_paragraph"] - 1] = asked["first_word"]


def _paragraphs(draft: Draft, asked: dict[str, Any]) -> None:
    draft.paragraphs, draft.divider = [""] * asked["num_paragraphs"], "\n***\n"


Deed = Callable[[Draft, dict[str, Any]], object]
DEEDS: dict[str, Deed] = {
    "repeat_prompt": lambda draft, asked: draft.openings.insert(0, asked["prompt_to_repeat"]),
    "title": lambda draft, _: draft.openings.append("<<" + draft.filler[0] + ">>"),
    "number_sentences": _sentences,
    "number_words": _words,
    "number_paragraphs": _paragraphs,
    "nth_paragraph_first_word": _paragraph_words,
    "existence": lambda draft, asked: draft.extras.extend(asked["keywords"]),
    "frequency": _often("keyword", "frequency"),
    "letter_frequency": _often("letter", "let_frequency", "let_relation"),
    "capital_word_frequency": _often("HO", "capital_frequency", "capital_relation"),
    "number_placeholders": lambda draft, asked: draft.extras.extend(["[x]"] * asked["num_placeholders"]),
    "number_highlighted_sections": lambda draft, asked: draft.extras.extend(
        ["so", *["*so*"] * asked["num_highlights"]]
    ),
    "multiple_sections": lambda draft, asked: draft.lines.extend(
        f"{asked['section_spliter']} {number}" for number in range(1, asked["num_sections"] + 1)
    ),
    "number_bullet_lists": lambda draft, asked: draft.lines.extend(["*"] * asked["num_bullets"]),
    "constrained_response": lambda draft, _: draft.endings.append("My answer is yes."),
    "postscript": lambda draft, asked: draft.endings.append(
        f"{asked['postscript_marker']} {draft.filler[0]}"
    ),
    "end_checker": lambda draft, asked: draft.endings.append(asked["end_phrase"]),
    "forbidden_words": lambda *_: None,
    "no_comma": lambda *_: None,
    "response_language": _at_length(200),
    "two_responses": lambda draft, _: draft.wrap.append(_two_answers),
    "english_lowercase": _at_length(100, str.lower),
    "english_capital": _at_length(100, str.upper),
    "json_format": lambda draft, _: draft.wrap.append(lambda text: json.dumps({"answer": text})),
    "quotation": lambda draft, _: draft.wrap.append(lambda text: f'"{text}"'),
}
ORDER = list(DEEDS)
