"""A recorded provider: the replies of a tree that was run before, read back from its journals.

It is a script like any other, so it keeps nothing about a run: a reply is found by the task of the
run that asks and by its turn.
"""

from actors.messages import Assistant
from actors.state import State
from actors.testing.scripts import Call, Conversation, Say, Step, script
from supervisor.config_errors import ConfigError
from supervisor.state_dir import StateDir

RECORDED = "recorded"
"""The name of the script."""


def record(state_dir: StateDir, run_id: str) -> str:
    """Register the replies of a tree as the script ``RECORDED``; returns the task of its root.

    Raises StateError, JournalError; ConfigError for a tree whose replies cannot be told apart.
    """
    root = state_dir.state(run_id)
    states = [root, *map(state_dir.state, state_dir.below(run_id))]
    replies: dict[tuple[str, int], Assistant] = {}
    for state in states:
        for turn in state.turns:
            at = (_task(state), turn.number - 1)
            if replies.setdefault(at, turn.message) != turn.message:
                raise ConfigError(
                    f"the recording {run_id} has two runs with the task {at[0]!r} and different "
                    "replies, which nothing tells apart; take another one"
                )

    @script(RECORDED)
    def play(conversation: Conversation) -> list[Step]:
        reply = replies[conversation.task, conversation.turn]
        said: list[Step] = [] if reply.text is None else [Say(reply.text)]
        return [*said, *(Call(call.name, call.arguments) for call in reply.calls)]

    return _task(root)


def _task(state: State) -> str:
    return next((prompt.text for prompt in state.prompts if prompt.role == "user"), "")
