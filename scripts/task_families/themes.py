"""The small worlds tasks are set in: file names, column names and the words that fill them.

Training and held-out tasks draw from different worlds and different people. Within a theme no two words are equal when
case is ignored, and none holds a comma, a quote or a shell character.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TRAIN_PEOPLE = ("Ada", "Bruno", "Chidi", "Dora", "Emeka", "Farah", "Goran", "Hana", "Ines", "Jonas", "Kofi", "Lena")
_HELDOUT_PEOPLE = (
    "Marta",
    "Niklas",
    "Olu",
    "Priya",
    "Quentin",
    "Rosa",
    "Sven",
    "Tariq",
    "Ursula",
    "Viktor",
    "Wen",
    "Yara",
)


@dataclass(frozen=True, slots=True)
class Theme:
    """Words of one world. Columns of its table: the record's number, thing, group, person, day, count and price."""

    name: str
    files: Sequence[str]
    number: str
    thing: str
    group: str
    person: str
    day: str
    count: str
    price: str
    things: Sequence[str]
    groups: Sequence[str]
    people: Sequence[str]

    @property
    def header(self) -> list[str]:
        return [self.number, self.thing, self.group, self.person, self.day, self.count, self.price]


THEMES: Mapping[str, Sequence[Theme]] = {
    "train": (
        Theme(
            "bookshop",
            ("sales", "orders", "books", "tills", "returns"),
            *("sale_id", "title", "genre", "buyer", "sold_on", "copies", "price"),
            things=(
                "atlas",
                "primer",
                "almanac",
                "saga",
                "memoir",
                "lexicon",
                "fable",
                "thriller",
                "manual",
                "sonnets",
            ),
            groups=("history", "poetry", "travel", "science", "crime", "cooking"),
            people=_TRAIN_PEOPLE,
        ),
        Theme(
            "garden",
            ("harvest", "beds", "seeds", "plots", "compost"),
            *("lot", "plant", "bed", "grower", "picked_on", "crates", "value"),
            things=("tomato", "leek", "radish", "kale", "pumpkin", "bean", "carrot", "beet", "spinach", "onion"),
            groups=("north", "south", "east", "west", "terrace", "glasshouse"),
            people=_TRAIN_PEOPLE,
        ),
        Theme(
            "cycling",
            ("rides", "rentals", "bikes", "trips", "workshop"),
            *("trip", "bike", "station", "rider", "ridden_on", "minutes", "fare"),
            things=("tandem", "cargo", "racer", "folder", "tourer", "cruiser", "gravel", "trike", "mountain", "city"),
            groups=("harbour", "market", "college", "stadium", "old_town", "airport"),
            people=_TRAIN_PEOPLE,
        ),
        Theme(
            "bakery",
            ("batches", "ovens", "loaves", "counter", "deliveries"),
            *("batch", "product", "shift", "baker", "baked_on", "trays", "cost"),
            things=("rye", "brioche", "bagel", "focaccia", "pretzel", "scone", "baguette", "muffin", "strudel", "bun"),
            groups=("dawn", "morning", "noon", "afternoon", "evening", "night"),
            people=_TRAIN_PEOPLE,
        ),
        Theme(
            "museum",
            ("visits", "tickets", "exhibits", "loans", "archive"),
            *("ticket", "exhibit", "wing", "guide", "visited_on", "visitors", "fee"),
            things=("amphora", "fresco", "tapestry", "mosaic", "statue", "helmet", "scroll", "mask", "coin", "vase"),
            groups=("bronze", "marble", "textile", "maritime", "printing", "modern"),
            people=_TRAIN_PEOPLE,
        ),
        Theme(
            "repairs",
            ("jobs", "tickets", "parts", "bench", "invoices"),
            *("job", "device", "fault", "technician", "closed_on", "hours", "charge"),
            things=(
                "kettle",
                "laptop",
                "radio",
                "printer",
                "camera",
                "drill",
                "toaster",
                "monitor",
                "scanner",
                "phone",
            ),
            groups=("battery", "screen", "hinge", "cable", "motor", "switch"),
            people=_TRAIN_PEOPLE,
        ),
    ),
    "heldout": (
        Theme(
            "observatory",
            ("sightings", "exposures", "nights", "plates", "domes"),
            *("plate", "target", "dome", "observer", "taken_on", "frames", "budget"),
            things=("comet", "nebula", "pulsar", "quasar", "cluster", "binary", "nova", "galaxy", "asteroid", "moon"),
            groups=("alpha", "beta", "gamma", "delta", "epsilon", "zeta"),
            people=_HELDOUT_PEOPLE,
        ),
        Theme(
            "ferry",
            ("crossings", "manifests", "decks", "berths", "sailings"),
            *("crossing", "cargo", "port", "captain", "sailed_on", "crates", "toll"),
            things=("timber", "salt", "wool", "barley", "slate", "iron", "honey", "cider", "cheese", "linen"),
            groups=("skerry", "holm", "firth", "cove", "strand", "ness"),
            people=_HELDOUT_PEOPLE,
        ),
        Theme(
            "pottery",
            ("firings", "glazes", "kilns", "studio", "commissions"),
            *("firing", "piece", "glaze", "potter", "fired_on", "pieces", "quote"),
            things=("jug", "bowl", "teapot", "platter", "beaker", "urn", "tile", "pitcher", "saucer", "crock"),
            groups=("celadon", "tenmoku", "shino", "cobalt", "ash", "raku"),
            people=_HELDOUT_PEOPLE,
        ),
    ),
}
