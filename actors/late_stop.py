"""The Stop of a run that nobody performs: recorded at once, so that no resume takes it up again."""

from actors.trace import Follower
from actors.wire import Start


async def end_stopped(start: Start, follow: Follower | None = None) -> None:
    """Take the run's lock, answer its open calls in words, and end it as ``start.stop`` says.

    No model is asked, and none of the user's code is loaded. Raises JournalError.
    """
    # Here, because few supervisors ever need it: it is all that an actor loads.
    from actors.opening import open_run

    assert start.stop, "it is there to be stopped"
    async with open_run(start, follow=follow) as run:
        run.request_stop(start.stop.reason, start.stop.who)
        await run.perform()
