"""How far a streamed answer has come."""


class Progress:
    """How much of one answer the client has."""

    def __init__(self) -> None:
        self.characters = 0
        self.tokens = 0
        self.begun = False
        self.ended = False
