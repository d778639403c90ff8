"""Level 1: one shell command over plain text files."""

from __future__ import annotations

from task_families.draft import Draft, Draw, Redraw, family, lines, number, text, text_of


@family(level=1)
def count_lines(draw: Draw) -> Draft:
    name, count = draw.file("txt"), draw.between(8, 60)
    return Draft(
        draw.phrase(
            "How many lines are in /app/{f}?",
            "Count the lines of /app/{f}.",
            "Tell me the number of lines in the file /app/{f}.",
            "What is the line count of /app/{f}?",
            f=name,
        ),
        "number",
        {name: text_of([draw.sentence() for _ in range(count)])},
        [number(count)],
        [f"wc -l < {name} > answer.txt"],
    )


@family(level=1)
def count_words(draw: Draw) -> Draft:
    name = draw.file("txt")
    body = [draw.sentence() for _ in range(draw.between(5, 20))]
    return Draft(
        draw.phrase(
            "How many words are in /app/{f}? Words are separated by spaces or newlines.",
            "Count the words in /app/{f} (anything between spaces or newlines is a word).",
            "Give the number of words in the file /app/{f}; whitespace separates words.",
            "What is the word count of /app/{f}, splitting on whitespace?",
            f=name,
        ),
        "number",
        {name: text_of(body)},
        [number(sum(len(line.split()) for line in body))],
        [f"wc -w < {name} > answer.txt"],
    )


@family(level=1)
def count_matching(draw: Draw) -> Draft:
    name = draw.file("log")
    word, *others = draw.shuffled(("ERROR", "WARNING", "INFO", "RETRY"))
    body = [f"{draw.pick((word, *others))} {draw.sentence()}" for _ in range(draw.between(15, 50))]
    found = sum(line.startswith(word) for line in body)
    if not found:
        raise Redraw("no line matches")
    return Draft(
        draw.phrase(
            "How many lines of /app/{f} contain {w}?",
            "Count the lines in /app/{f} that contain the word {w}.",
            "In /app/{f}, how often does a line with {w} occur?",
            "What is the number of {w} lines in /app/{f}?",
            f=name,
            w=word,
        ),
        "number",
        {name: text_of(body)},
        [number(found)],
        [f"grep -c {word} {name} > answer.txt"],
    )


@family(level=1)
def count_different_lines(draw: Draw) -> Draft:
    name = draw.file("txt")
    body = [f"{draw.pick(draw.theme.people)} {draw.pick(draw.theme.groups)}" for _ in range(draw.between(20, 40))]
    return Draft(
        draw.phrase(
            "How many different lines does /app/{f} have? Count a repeated line once.",
            "Count the distinct lines of /app/{f}.",
            "How many lines are left in /app/{f} if duplicates are counted only once?",
            "What is the number of unique lines in /app/{f} (each repeated line counts one time)?",
            f=name,
        ),
        "number",
        {name: text_of(body)},
        [number(len(set(body)))],
        [f"sort -u {name} | wc -l > answer.txt"],
    )


@family(level=1)
def count_files(draw: Draw) -> Draft:
    folder = draw.pick(draw.theme.files)
    wanted, other = draw.shuffled(("txt", "csv", "md"))[:2]
    stems = draw.sample(draw.theme.things, draw.between(4, 9))
    files = {f"{folder}/{stem}.{wanted}": text_of([draw.sentence()]) for stem in stems}
    files |= {f"{folder}/{stem}.{other}": text_of([draw.sentence()]) for stem in draw.sample(draw.theme.people, 3)}
    return Draft(
        draw.phrase(
            "How many .{e} files are in the folder /app/{d}?",
            "Count the files in /app/{d} whose name ends in .{e}.",
            "Tell me how many files with the ending .{e} the folder /app/{d} holds.",
            "What is the number of .{e} files in /app/{d}?",
            e=wanted,
            d=folder,
        ),
        "number",
        files,
        [number(len(stems))],
        [f"ls {folder}/*.{wanted} | wc -l > answer.txt"],
    )


def _numbers(draw: Draw) -> tuple[str, list[int]]:
    return draw.file("txt"), draw.sample(range(10, 1000), draw.between(8, 30))


@family(level=1)
def sum_numbers(draw: Draw) -> Draft:
    name, values = _numbers(draw)
    return Draft(
        draw.phrase(
            "What is the sum of the numbers in /app/{f}?",
            "Add up the numbers in /app/{f}; there is one per line.",
            "Each line of /app/{f} is a number. What is their total?",
            "/app/{f} holds one number a line. Give the total of all of them.",
            f=name,
        ),
        "number",
        {name: text_of(values)},
        [number(sum(values))],
        [f"awk '{{s += $1}} END {{print s}}' {name} > answer.txt"],
    )


@family(level=1)
def largest_number(draw: Draw) -> Draft:
    name, values = _numbers(draw)
    return Draft(
        draw.phrase(
            "What is the largest number in /app/{f}?",
            "Find the biggest number in /app/{f}; there is one per line.",
            "Each line of /app/{f} is a number. Which is the highest?",
            "/app/{f} holds one number a line. Give the maximum.",
            f=name,
        ),
        "number",
        {name: text_of(values)},
        [number(max(values))],
        [f"sort -n {name} | tail -n 1 > answer.txt"],
    )


@family(level=1)
def smallest_number(draw: Draw) -> Draft:
    name, values = _numbers(draw)
    return Draft(
        draw.phrase(
            "What is the smallest number in /app/{f}?",
            "Find the lowest number in /app/{f}; there is one per line.",
            "Each line of /app/{f} is a number. Which is the least?",
            "/app/{f} holds one number a line. Give the minimum.",
            f=name,
        ),
        "number",
        {name: text_of(values)},
        [number(min(values))],
        [f"sort -n {name} | head -n 1 > answer.txt"],
    )


@family(level=1)
def value_of_key(draw: Draw) -> Draft:
    name = draw.file("env")
    keys = [word.upper() for word in draw.sample(draw.theme.things, draw.between(5, 9))]
    values = {key: f"{draw.pick(draw.theme.groups)}-{draw.between(10, 99)}" for key in keys}
    key = draw.pick(keys)
    return Draft(
        draw.phrase(
            "What is the value of {k} in /app/{f}?",
            "/app/{f} has lines of the form KEY=VALUE. Which value does {k} have?",
            "Look up {k} in /app/{f} and give its value.",
            "In the KEY=VALUE file /app/{f}, what is {k} set to?",
            k=key,
            f=name,
        ),
        "text",
        {name: text_of([f"{key}={value}" for key, value in values.items()])},
        [text(values[key])],
        [f"grep '^{key}=' {name} | cut -d= -f2 > answer.txt"],
    )


@family(level=1)
def nth_line(draw: Draw) -> Draft:
    name, body = draw.file("txt"), [draw.sentence() for _ in range(draw.between(10, 30))]
    index = draw.between(2, len(body) - 1)
    return Draft(
        draw.phrase(
            "What does line {n} of /app/{f} say?",
            "Copy line {n} of /app/{f}. The first line is line 1.",
            "Give the text of line number {n} in /app/{f}, counting from 1.",
            "Which text stands on line {n} of /app/{f} (lines are counted from 1)?",
            n=index,
            f=name,
        ),
        "text",
        {name: text_of(body)},
        [text(body[index - 1])],
        [f"sed -n {index}p {name} > answer.txt"],
    )


@family(level=1)
def sort_lines(draw: Draw) -> Draft:
    name, body = draw.file("txt"), draw.sample(draw.theme.things, draw.between(6, 10))
    if body == sorted(body):
        raise Redraw("already sorted")
    return Draft(
        draw.phrase(
            "Sort the lines of /app/{f} alphabetically, in place.",
            "Put the lines of /app/{f} in alphabetical order and save the result in the same file.",
            "Rewrite /app/{f} so that its lines are in A to Z order.",
            "The lines of /app/{f} are out of order. Make them alphabetical, in the file itself.",
            f=name,
        ),
        "edit",
        {name: text_of(body)},
        [lines(name, sorted(body))],
        [f"sort -o {name} {name}"],
        ["file-editing"],
    )


@family(level=1)
def replace_word(draw: Draw) -> Draft:
    name = draw.file("txt")
    old, new = draw.sample(draw.theme.groups, 2)
    body = [f"{draw.sentence()} in {draw.pick((old, *draw.theme.groups))}" for _ in range(draw.between(8, 16))]
    if any(old in word and old != word for line in body for word in line.split()):
        raise Redraw("the word is part of another word")
    changed = [line.replace(old, new) for line in body]
    if sum(line != after for line, after in zip(body, changed, strict=True)) < 2:
        raise Redraw("too few lines hold the word")
    return Draft(
        draw.phrase(
            "In /app/{f}, replace every {o} by {n}. Leave everything else as it is.",
            "Change the word {o} to {n} everywhere in /app/{f}, and nothing else.",
            "Edit /app/{f}: each {o} becomes {n}; the rest stays.",
            "Every {o} in /app/{f} should read {n}. Make that change in the file and no other.",
            f=name,
            o=old,
            n=new,
        ),
        "edit",
        {name: text_of(body)},
        [lines(name, changed)],
        [f"sed -i 's/{old}/{new}/g' {name}"],
        ["file-editing"],
    )


@family(level=1)
def remove_blank_lines(draw: Draw) -> Draft:
    name = draw.file("txt")
    kept = [draw.sentence() for _ in range(draw.between(6, 12))]
    body = [part for line in kept for part in (line, *[""] * draw.pick((0, 0, 1, 2)))]
    if body.count("") < 3:
        raise Redraw("too few blank lines")
    return Draft(
        draw.phrase(
            "Remove the empty lines from /app/{f}, in place.",
            "Delete every blank line of /app/{f} and keep the other lines as they are.",
            "Edit /app/{f} so that it has no empty lines any more.",
            "/app/{f} has blank lines between its entries. Take them out, in the file itself.",
            f=name,
        ),
        "edit",
        {name: text_of([*body, draw.theme.name])},
        [lines(name, [*kept, draw.theme.name])],
        [f"sed -i '/^$/d' {name}"],
        ["file-editing"],
    )
