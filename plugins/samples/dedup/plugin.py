"""Finds records that say the same in other words, and asks about the doubtful ones."""

import hashlib
import unicodedata
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import islice
from typing import Annotated

from bulkhead_plugin import Field, InvalidParams, ask, call, kv, resource, task, tool

#: Questions that one call may put to the user.
QUESTIONS_MAX = 5

#: Seconds that a decision of a user is remembered, where the operator grants `[plugin.kv]`.
REMEMBERED = 30 * 86400

Share = Annotated[float, Field(minimum=0, maximum=1)]


@dataclass
class Pair:
    """Two records, by their place in the list."""

    first: int
    second: int
    #: 1 for the same text.
    similarity: float


@dataclass
class Same:
    """What the user is asked."""

    same: Annotated[bool, "Whether both are the same."]


@dataclass
class Report:
    """What was found."""

    groups: Annotated[list[list[int]], "Records that belong together, by their place in the list."]
    doubtful: Annotated[list[Pair], "Pairs that nobody decided about."]
    compared: Annotated[int, "Records that were compared with all before them."]
    complete: Annotated[bool, "False if a message stopped the search early."]
    messages: Annotated[list[str], "The messages that arrived meanwhile."] = field(default_factory=list)


@tool(title="Find duplicates", task="optional", read_only=True, idempotent=True, open_world=False)
def find_duplicates(
    records: Annotated[list[str], "One text for each record.", Field(max_items=5000)],
    threshold: Annotated[Share, "From this similarity on, two records are the same."] = 0.9,
    doubtful: Annotated[Share, "From this similarity on, the user is asked."] = 0.75,
) -> Report:
    """Groups records that say the same in other words (spelling, order of words, accents, punctuation). Reports progress, and
    asks the user about doubtful pairs, each once in a month where decisions can be kept. As a task it takes messages: `stop` ends the search early, `threshold 0.8` changes
    the threshold."""
    if doubtful > threshold:
        raise InvalidParams("doubtful is larger than threshold")
    search = Search([normalized(record) for record in records], threshold, doubtful)
    messages: list[str] = []
    stopped = False
    while not stopped and search.advance():
        task.progress(search.position, len(records), f"{len(search.groups())} groups so far")
        if task.checkpoint().steering_pending:
            for message in task.steering():
                stopped |= steer(search, message)
                task.set_status(f"{search.position} of {len(records)} records; noted: {message}")
                messages.append(message)
    left = decide(search, records)
    return Report(search.groups(), left, search.position, search.position == len(records), messages)


def steer(search: "Search", message: str) -> bool:
    """Does what a message says; whether it says to stop."""
    match message.strip().lower().split():
        case ["stop"]:
            return True
        case ["threshold", number] if number.replace(".", "", 1).isdigit():
            search.threshold = min(1.0, float(number))
    return False


def decide(search: "Search", records: list[str]) -> list[Pair]:
    """Asks about the likeliest of the doubtful pairs; the rest is left."""
    pairs = sorted(search.doubts, key=lambda pair: -pair.similarity)
    memory = Memory(search.texts)
    pairs = [pair for pair in pairs if not recall(search, memory, pair)]
    if not pairs or not call.client_supports("elicitation-form"):
        return pairs
    left: list[Pair] = []
    for pair in pairs:
        if search.root(pair.first) == search.root(pair.second):
            continue
        if search.asked == QUESTIONS_MAX:
            left.append(pair)
            continue
        search.asked += 1
        task.set_status("Waiting for a decision")
        message = f"Are these the same?\n1. {records[pair.first][:200]}\n2. {records[pair.second][:200]}"
        answer = ask.form(Same, key=f"pair-{pair.first}-{pair.second}", message=message)
        if answer.content is None:
            left.append(pair)
            continue
        memory.remember(pair, answer.content.same)
        if answer.content.same:
            search.join(pair.first, pair.second)
    return left


def recall(search: "Search", memory: "Memory", pair: Pair) -> bool:
    """Whether somebody has decided about a pair before; if they are the same, they are joined."""
    same = memory.decision(pair)
    if same:
        search.join(pair.first, pair.second)
    return same is not None


class Memory:
    """Decisions of earlier calls. Without a key-value store there are none."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.granted = True

    def key(self, pair: Pair) -> str:
        both = "\n".join(sorted((self.texts[pair.first], self.texts[pair.second])))
        return f"decision/{hashlib.sha256(both.encode()).hexdigest()}"

    def decision(self, pair: Pair) -> bool | None:
        if not self.granted:
            return None
        try:
            kept = kv.get(self.key(pair))
        except kv.KvError:
            self.granted = False
            return None
        return None if kept is None else kept == b"same"

    def remember(self, pair: Pair, same: bool) -> None:
        if not self.granted:
            return
        try:
            kv.set(self.key(pair), "same" if same else "different", ttl=REMEMBERED)
        except kv.KvError:
            self.granted = False


def normalized(record: str) -> str:
    """Lower case, without accents and punctuation, the words in order."""
    plain = unicodedata.normalize("NFKD", record.casefold())
    kept = "".join(c if c.isalnum() else " " for c in plain if not unicodedata.combining(c))
    return " ".join(sorted(kept.split()))


@resource("dedup://compared/{+record}", title="A record as it is compared", mime_type="text/plain")
def compared(record: str) -> str:
    """What is left of a record when it is compared with others: two that read the same here are the same."""
    return normalized(record)


class Search:
    """Compares each record with all before it."""

    def __init__(self, texts: list[str], threshold: float, doubtful: float) -> None:
        self.texts = texts
        self.threshold = threshold
        self.doubtful = doubtful
        self.position = 0
        self.asked = 0
        self.doubts: list[Pair] = []
        self.parents = list(range(len(texts)))

    def advance(self) -> bool:
        """Compares one more record; false when there is none left."""
        if self.position == len(self.texts):
            return False
        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(self.texts[self.position])
        for other, text in enumerate(islice(self.texts, self.position)):
            matcher.set_seq1(text)
            # Both are upper bounds, and much cheaper.
            if matcher.real_quick_ratio() < self.doubtful or matcher.quick_ratio() < self.doubtful:
                continue
            similarity = matcher.ratio()
            if similarity >= self.threshold:
                self.join(other, self.position)
            elif similarity >= self.doubtful:
                self.doubts.append(Pair(other, self.position, round(similarity, 3)))
        self.position += 1
        return True

    def root(self, record: int) -> int:
        while self.parents[record] != record:
            record = self.parents[record]
        return record

    def join(self, first: int, second: int) -> None:
        low, high = sorted((self.root(first), self.root(second)))
        self.parents[high] = low

    def groups(self) -> list[list[int]]:
        """Those with more than one member."""
        members: dict[int, list[int]] = {}
        for record in range(len(self.texts)):
            members.setdefault(self.root(record), []).append(record)
        return [group for group in members.values() if len(group) > 1]
