"""A recorded provider: the replies of a tree that was run before, read back from its journals.

It is a script like any other, so it keeps nothing about a run: a reply is found by the task of the
run that asks and by its turn.
"""

from actors.messages import Assistant
from actors.state import State
from actors.testing.scripts import Call, Conversation, Say, Step, script
from supervisor.config import Config
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


def check_recorded(state_dir: StateDir, run_id: str, config: Config) -> None:
    """Raise ConfigError unless the agents of a recording are those of this configuration."""
    old = state_dir.config(run_id)
    again = f"record a run of this configuration, or give that of {run_id}"
    if old.run.agent != config.run.agent:
        words = f"the recording {run_id} begins with the agent {old.run.agent}; {again}"
        raise config.error("run.agent", words)
    for name in {state_dir.state(one).agent for one in (run_id, *state_dir.below(run_id))}:
        there = sorted(old.agents[name].tools)
        here = sorted(config.agents[name].tools) if name in config.agents else None
        if here != there:
            tools = ", ".join(there) or "none"
            words = f"in the recording {run_id} this agent has the tools {tools}; {again}"
            raise config.error(f"agents.{name}", words)


def _task(state: State) -> str:
    return next((prompt.text for prompt in state.prompts if prompt.role == "user"), "")
