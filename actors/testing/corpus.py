"""A small corpus in many languages, and texts of any length that are made from it."""

import random
import re

CORPUS = {
    "English": "The committee met again on Tuesday, and nobody could say why the earlier report "
    "had been withdrawn. It was, she thought, a strange sort of progress. ",
    "Russian": "Комитет снова собрался во вторник, и никто не мог сказать, почему прежний отчёт "
    "был отозван. Это был, подумала она, странный прогресс. ",
    "German": "Der Ausschuss trat am Dienstag erneut zusammen, und niemand konnte sagen, warum "
    "der frühere Bericht zurückgezogen worden war. ",
    "Chinese": "委员会星期二再次开会。没有人能说出为什么先前的报告被撤回了。这是一种奇怪的进展。",
    "Japanese": "委員会は火曜日に再び開かれたが、なぜ報告書が撤回されたのか誰にも言えなかった。",
    "Korean": "위원회는 화요일에 다시 모였지만, 왜 이전 보고서가 철회되었는지 말할 수 없었다. ",
    "Hindi": "समिति की मंगलवार को फिर बैठक हुई, और कोई नहीं बता सका कि रिपोर्ट क्यों वापस ली गई। ",
    "Arabic": "اجتمعت اللجنة مرة أخرى يوم الثلاثاء، ولم يستطع أحد أن يقول لماذا سحب التقرير. ",
    "code": "def fit(window: Window, marks: Marks) -> Marks:\n    for index in range(10):\n"
    "        if window.size(index) <= budget:\n            return replace(marks, upto=index)\n",
    "JSON": '{"id": 48213, "name": "errors.log", "size": 182034, "tags": ["a", "b"], "ok": true}\n',
    "logs": "2024-11-03T08:14:22.183Z WARN worker-7 [req=8f3a91bc] GET /items/4821 503 30001ms "
    "upstream timed out\n",
}


def shuffled(language: str, words: int, rng: random.Random) -> str:
    """So many words of a language in any order; characters where it has no spaces."""
    text = CORPUS[language]
    pieces = re.findall(r"\S+\s*", text) if " " in text else list(text)
    return "".join(rng.choices(pieces, k=words))
