"""Level 3: a task that takes eight commands, each of which depends on what the one before it printed."""

from __future__ import annotations

from task_families.draft import Draft, Draw, family, number, text_of

NOTES = 7


@family(level=3)
def eight_step_trail(draw: Draw) -> Draft:
    """Seven notes to read one after the other among decoys, then one answer to write: eight commands."""
    theme = draw.theme
    names = [f"{thing}-{group}" for thing in theme.things for group in theme.groups]
    path, decoys = draw.sample(names, NOTES), draw.sample(names, 25)
    amounts = [draw.between(11, 99) for _ in path]
    folder = draw.pick(theme.files)
    files = {
        f"{folder}/{name}.txt": text_of([f"Add {draw.between(11, 99)}.", f"Then read {draw.pick(names)}.txt."])
        for name in decoys
    }
    for here, amount, following in zip(path, amounts, [*path[1:], ""], strict=True):
        onward = f"Then read {following}.txt." if following else "This is the last note."
        files[f"{folder}/{here}.txt"] = text_of([f"Add {amount}.", onward])
    return Draft(
        draw.phrase(
            "Follow a trail of notes in /app/{d}. Start with {n}.txt; each note gives a number to add and names the"
            " next note, until one says it is the last. What is the sum of the numbers on the trail?",
            "/app/{d} holds many notes. Begin at {n}.txt, add the number in it, go on to the note it names, and so on"
            " to the last note. What total do you reach?",
            "Read {n}.txt in /app/{d}. It has a number and the name of the next note. Go from note to note to the last"
            " one and give the sum of their numbers.",
            "A chain of notes in /app/{d} starts at {n}.txt and runs, each naming its successor, to one that calls"
            " itself the last. Total the numbers of the notes on that chain.",
            d=folder,
            n=path[0],
        ),
        "number",
        files,
        [number(sum(amounts))],
        [*(f"cat {folder}/{name}.txt" for name in path), f"echo $(({' + '.join(map(str, amounts))})) > answer.txt"],
        ["several-steps"],
    )
