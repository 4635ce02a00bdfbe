"""The script ``chapters``: a book of 40 chapters in many languages, read one by one.

It plays the model that gives up to save space: without the harness's paragraph in its system prompt
it stops after two chapters. Which chapter comes next it sees from the last result alone, so that it
does not matter what was cleared or folded before. ``chapters_reread`` also looks back now and then,
and reads again what is not there any more.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path

from actors.testing.scripts import Call, Conversation, Say, script

CHAPTERS = 40
CHAPTER_CHARS = 9000
PATIENCE = 2
"""Chapters that the model reads when nobody tells it that its window is looked after."""
LOOK_BACK = 9
"""How many chapters ``chapters_reread`` looks back, after every tenth."""
TOLD = "Do not stop early to save space"

_HEADING = re.compile(r"Chapter (\d+) of (\d+)\b")
_WORDS = {
    "English": "the a river under winter city letter nobody remembers light and stone of bridge",
    "Russian": "река зимой город письмо никто не помнит свет и камень под мостом старый дом",
    "German": "der Fluss im Winter Brücke Straße niemand erinnert sich Licht und Stein größer",
    "Greek": "το ποτάμι τον χειμώνα πόλη γράμμα κανείς δεν θυμάται φως και πέτρα γέφυρα",
    "Arabic": "النهر في الشتاء مدينة رسالة لا أحد يتذكر ضوء و حجر تحت الجسر القديم",
    "Hindi": "नदी सर्दियों में शहर चिट्ठी किसी को याद नहीं रोशनी और पत्थर पुल के नीचे",
    "Chinese": "河流 冬天 城市 信件 没有人 记得 光 和 石头 桥下 旧房子 夜晚 风",
    "Japanese": "川 冬の 都市 手紙 誰も 覚えて いない 光と 石 橋の下 古い家 夜 かぜ",
    "Korean": "강 겨울에 도시 편지 아무도 기억하지 못하는 빛과 돌 다리 아래 오래된 집",
    "French": "la rivière en hiver une ville lettre personne ne se rappelle lumière pierre été",
}
_UNSPACED = ("Chinese", "Japanese")


def chapter_name(number: int) -> str:
    """The file of a chapter, counted from 1."""
    return f"chapter-{number:02}.txt"


def chapter_text(number: int, chars: int = CHAPTER_CHARS) -> str:
    """A chapter, about ``chars`` characters long; always the same for its number."""
    language = list(_WORDS)[(number - 1) % len(_WORDS)]
    words = _WORDS[language].split()
    rng = random.Random(number)
    gap, stop = ("", "。") if language in _UNSPACED else (" ", ". ")
    parts = [f"Chapter {number} of {CHAPTERS}, in {language}\n\n"]
    length = 0
    while length < chars:
        sentence = gap.join(rng.choices(words, k=rng.randint(6, 14)))
        end = "\n\n" if rng.random() < 0.15 else stop
        parts += (sentence, end)
        length += len(sentence) + len(end)
    return "".join(parts)


def write_chapters(folder: Path, chars: int = CHAPTER_CHARS) -> None:
    """Write all chapters into a folder that exists."""
    for number in range(1, CHAPTERS + 1):
        (folder / chapter_name(number)).write_text(chapter_text(number, chars), encoding="utf-8")


def _read(number: int) -> Call:
    return Call("read_file", {"path": chapter_name(number)})


def _number(result: str) -> int:
    """The chapter that a result holds, 0 if it holds none."""
    found = _HEADING.match(result)
    return int(found[1]) if found else 0


def _next_step(conversation: Conversation) -> Say | int:
    """The number of the chapter to read next, or the end."""
    if not conversation.results:
        return 1
    last = _number(conversation.results[-1])
    if not last:
        return Say(f"I could not read on: {conversation.results[-1][:100]}")
    if last == CHAPTERS:
        return Say(f"I have read {last} of {CHAPTERS} chapters.")
    if last >= PATIENCE and TOLD not in conversation.system:
        return Say(f"I have read {last} of {CHAPTERS} chapters and stop here to save space.")
    return last + 1


@script("chapters")
def chapters(conversation: Conversation) -> Say | Call:
    """Read the next chapter; stop after two unless told that there is no need to save space."""
    step = _next_step(conversation)
    return step if isinstance(step, Say) else _read(step)


@script("chapters_reread")
def chapters_reread(conversation: Conversation) -> Say | Sequence[Say | Call]:
    """As ``chapters``, but after every tenth chapter an early one is read again if it is gone.

    The next chapter is read in the same message and behind it, so that the last result still tells
    how far the reading has come.
    """
    step = _next_step(conversation)
    if isinstance(step, Say):
        return step
    early = step - 1 - LOOK_BACK
    gone = (step - 1) % 10 == 0 and early not in map(_number, conversation.results)
    return [_read(early), _read(step)] if early > 0 and gone else [_read(step)]
