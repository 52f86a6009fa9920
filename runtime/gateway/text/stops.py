"""Stop strings found in text that comes in pieces."""


class StopStrings:
    """Passes text through until one of `stops` appears; the text ends before it.

    Holds back only the longest end of the text that could still become a stop string. None of `stops` is empty.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that is now certain to stay; sets `found` when a stop string is complete."""
        if not self._stops:
            return text
        text = self._held + text
        # The first to be complete counts, not the first to begin: so it does not matter how the text was cut.
        matches = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if matches:
            self.found = True
            self._held = ""
            _, start = min(matches)
            return text[:start]
        certain = self._num_certain(text)
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held

    def _num_certain(self, text: str) -> int:
        """Characters before the first place from which `text`, to its end, begins a stop string."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            rest = text[start:]
            if any(stop.startswith(rest) for stop in self._stops):
                return start
        return len(text)
