"""Several answers to one prompt: they share the blocks of the prompt."""

from jackfield.core.engine.request import Request, Status


class Group:
    """The requests of one call with n > 1. The first computes the prompt, the others join it."""

    __slots__ = ("is_open", "longest", "members", "num_ended")

    def __init__(self, members: list[Request]) -> None:
        self.members = members
        self.is_open = False
        self.num_ended = 0
        self.longest = 0
        for member in members:
            member.group = self

    @property
    def leader(self) -> Request:
        """The request that computes the prompt for all."""
        return self.members[0]

    def awaits_prompt(self, member: Request) -> bool:
        """Whether the member should wait until the leader has planned the prompt."""
        return not self.is_open and member is not self.leader

    def open(self) -> None:
        """The prompt is there, or the leader is gone: nobody waits any more."""
        self.is_open = True

    def ended(self, member: Request) -> None:
        """The member has its last token. `longest` is that of all ended answers, in tokens."""
        self.num_ended += 1
        self.longest = max(self.longest, len(member.output))

    @property
    def has_ended(self) -> bool:
        """Whether all answers have."""
        return self.num_ended == len(self.members)

    def donor(self, num_tokens: int) -> Request | None:
        """A running member whose first `num_tokens` positions are planned already."""
        for member in self.members:
            if member.status is Status.RUNNING and member.computed >= num_tokens:
                return member
        return None
