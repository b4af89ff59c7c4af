"""The blocks that work on words, `ws`, and on a single word, `s`."""

from __future__ import annotations

from functools import partial

from rlanything_coding.families.blocks import stage

LETTERS = "eaotinsrlud"

_keep = partial(stage, "keep", "ws = [w for w in ws if ...]", takes="words")
_map = partial(stage, "map", "ws = [... for w in ws]", takes="words")
_print = partial(stage, "print", "print(...)", takes="words")
_drop = partial(stage, "keep", "s = ...", takes="word")
_turn = partial(stage, "map", "s = ...", takes="word")
_tell = partial(stage, "print", "print(...)", takes="word")

WORDS = (
    _keep(
        "longer",
        "len(w) > {k}",
        ("keep the words of more than {k} letters", "drop words of up to {k} letters"),
        "len(w) >= {k}",
        "len(w) < {k}",
        constants=range(2, 5),
    ),
    _keep(
        "containing",
        "{k} in w",
        ("keep the words with the letter {k}", "drop the words without the letter {k}"),
        "{k} not in w",
        "w[0] == {k}",
        constants=LETTERS,
    ),
    _keep(
        "vowel first",
        'w[0] in "aeiou"',
        ("keep the words that begin with a vowel", "drop the words that begin with a consonant"),
        'w[0] not in "aeiou"',
        'w[-1] in "aeiou"',
    ),
    _keep(
        "palindromes",
        "w == w[::-1]",
        ("keep the palindromes", "drop the words that read otherwise from the right"),
        "w != w[::-1]",
        "w[0] == w[-1]",
    ),
    _map(
        "upper",
        "w.upper()",
        ("change all letters to capitals", "write each in capitals"),
        "w.title()",
    ),
    _map(
        "mirror",
        "w[::-1]",
        ("reverse every word", "write each word from right to left"),
        "w[::-2]",
    ),
    _map("initial", "w[0]", ("take the first letter of each", "cut each to one letter"), "w[-1]"),
    stage(
        "map",
        "xs = [... for w in ws]",
        "lengths",
        "len(w)",
        ("take the lengths of the words as numbers", "count the letters of each word"),
        "len(w) - 1",
        "len(set(w))",
        takes="words",
        gives="numbers",
    ),
    _print(
        "word count",
        "len(ws)",
        ("how many words there are", "the count"),
        "len(set(ws))",
        empty="0",
    ),
    _print(
        "longest",
        'max(ws, key=len, default="none")',
        ("the longest word, the first of equals", "the first of the longest words"),
        'min(ws, key=len, default="none")',
        "max(ws, key=len)",
        'max(ws, default="none")',
        'max(ws[::-1], key=len, default="none")',
        empty="none",
    ),
    _print(
        "shortest",
        'min(ws, key=len, default="none")',
        ("the shortest word, the first of equals", "the first of the shortest words"),
        'max(ws, key=len, default="none")',
        "min(ws, key=len)",
        'min(ws, default="none")',
        'min(ws[::-1], key=len, default="none")',
        empty="none",
    ),
    _print(
        "words",
        '*ws or ["none"]',
        ("the words in their order", "the words on one line"),
        "*ws",
        '*sorted(ws) or ["none"]',
        empty="none",
    ),
    _print(
        "alphabetical",
        '*sorted(ws) or ["none"]',
        ("the words in alphabetical order", "the words sorted from a to z"),
        '*ws or ["none"]',
        '*sorted(ws)[::-1] or ["none"]',
        '*sorted(set(ws)) or ["none"]',
        empty="none",
    ),
    _print(
        "words backwards",
        '*ws[::-1] or ["none"]',
        ("the words from last to first", "the words in reverse order"),
        '*ws or ["none"]',
        '*sorted(ws)[::-1] or ["none"]',
        empty="none",
    ),
    _drop(
        "without letter",
        's.replace({k}, "")',
        ("leave out the letter {k}", "drop every {k}"),
        's.replace({k}, "", 1)',
        constants=LETTERS,
    ),
    _drop(
        "consonants",
        '"".join(c for c in s if c not in "aeiou")',
        ("leave out the vowels", "keep the consonants"),
        '"".join(c for c in s if c in "aeiou")',
    ),
    _turn("reverse", "s[::-1]", ("reverse the word", "write it from right to left"), "s[::-2]"),
    _turn("capitals", "s.upper()", ("write it in capitals", "change it to capitals"), "s.title()"),
    _turn("twice", "s * 2", ("write it twice in a row", "append it to itself"), "s + s[::-1]"),
    _tell(
        "word",
        's or "none"',
        ("the word", "the result"),
        's[::-1] or "none"',
        "s",
        empty="none",
    ),
    _tell(
        "sorted letters",
        '"".join(sorted(s)) or "none"',
        ("its letters in alphabetical order", "its letters sorted from a to z"),
        '"".join(sorted(set(s))) or "none"',
        '"".join(sorted(s)[::-1]) or "none"',
        empty="none",
    ),
    _tell(
        "length",
        "len(s)",
        ("the number of its letters", "its length"),
        "len(set(s))",
        "len(s) - 1",
        empty="0",
    ),
    _tell(
        "letter count",
        "s.count({k})",
        ("how often the letter {k} occurs", "the number of letters {k} in it"),
        "int({k} in s)",
        "s.find({k})",
        constants=LETTERS,
        empty="0",
    ),
    _tell(
        "vowel count",
        'sum(c in "aeiou" for c in s)',
        ("the number of its vowels", "how many of its letters are vowels"),
        'sum(c not in "aeiou" for c in s)',
        'len(set(s) & set("aeiou"))',
        empty="0",
    ),
    _tell(
        "palindrome",
        '"yes" if s == s[::-1] else "no"',
        ("yes if it is a palindrome, else no", "yes or no: it is the same from right to left"),
        '"no" if s == s[::-1] else "yes"',
        '"yes" if s[0] == s[-1] else "no"',
        empty="yes",
    ),
)
