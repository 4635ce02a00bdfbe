"""The user's own code is tried before a run needs it, in real processes that harm nobody."""

import logging
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from desk import HANG, MINE, Desk
from grove import Host
from run_tools import is_alive

from actors import landlock
from supervisor import ConfigError, Supervisor, load_config
from supervisor.code_check import check_code
from supervisor.spawned import Process, SpawnError

STARTS = """
import os, subprocess
print(os.getpid(), subprocess.Popen(["sleep", "60"]).pid)
"""
needs_landlock = pytest.mark.skipif(
    landlock.abi() < landlock.ABI_NETWORK, reason="needs Landlock of Linux 6.7"
)
OTHER = '[tools.other]\nmodule = "other"'
UNFIT = """from actors import tool

@tool{}
def f({}) -> str:
    return ""
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A configuration with a module of its own, which is sound."""
    return Desk(tmp_path)


def test_sound_code_is_accepted(desk: Desk, host: Host) -> None:
    """Tools of a module, shipped ones, a child and a stop condition; nothing is left on disk."""
    desk.module("my_tools", f"{MINE}\ndef late(state): return None")
    desk.write("list_files", "note_write", "mine", "ask", stop_when=("my_tools:late",))
    desk.check(host)
    assert list(desk.state.runs.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no module my_tools in /"),
        ("import nowhere", "the module my_tools needs nowhere, which is missing; install it"),
        ("\n1 / 0", "cannot be imported: ZeroDivisionError: division by zero (/"),
        ("\n1 / 0", "/my_tools.py, line 2)"),
        ("x = = 1", "cannot be imported: SyntaxError: invalid syntax (my_tools.py, line 1)"),
        ("import os; os.environ['NO']", "KeyError: 'NO' (/"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("import os; os._exit(0)", "ended its process (exited with status 0); take that out"),
        ("import os; os.kill(os.getpid(), 9)", "ended its process (killed by SIGKILL)"),
        ("", "the module my_tools has no tools; mark functions in it with @tool"),
        ("def mine() -> str: return ''", "the module my_tools has no tools; mark functions in it"),
        (
            UNFIT.format("", "a"),
            "cannot be imported: TypeError: f: parameter a has no annotation (/",
        ),
        (UNFIT.format("", "a"), "/my_tools.py, line 3)"),
        (UNFIT.format("", "a: Nowhere"), "/my_tools.py, line 4)"),
        (UNFIT.format("", "a: object"), "/my_tools.py, line 3)"),
        (UNFIT.format("(timeout_s=0)", ""), "/my_tools.py, line 3)"),
        (UNFIT.format("(read_only=True, keyed=True)", ""), "/my_tools.py, line 3)"),
        ("import trio; trio.run(trio.sleep, 0)", "RuntimeError: Attempted to call run() from insi"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_named_with_its_key(
    desk: Desk, host: Host, text: str | None, words: str
) -> None:
    """What it did to the process that tried it is said in words; a line, where it has one."""
    if text is None:
        (desk.folder / "my_tools.py").unlink()
    else:
        desk.module("my_tools", text)
    refused = desk.refused(host)
    assert refused.startswith("tools.own.module: ")
    assert words in refused


def test_a_module_that_writes_where_it_has_no_business_is_refused(desk: Desk, host: Host) -> None:
    """It is named, unless what it wrote came together with its name, which is then lost."""
    desk.module("my_tools", "import os; os.write(3, b'\\xff' * 99)")
    with pytest.raises((ConfigError, SpawnError), match="process"):
        desk.check(host)


def test_a_module_that_hangs_is_named_and_its_process_is_gone(
    desk: Desk, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit holds for each module; the process that hangs, and what it started, is killed."""
    desk.module("my_tools", f"{STARTS}\n{HANG}")
    with caplog.at_level(logging.WARNING, logger="exeunt.check"):
        words = desk.refused(host, seconds=1.0)
    assert words == (
        "tools.own.module: the module my_tools was not loaded within 1 s; let it wait for nothing"
    )
    (line,) = caplog.messages
    for pid in line.split(": ")[1].split():
        assert not is_alive(int(pid))


def test_a_zygote_that_dies_meanwhile_is_not_taken_for_a_fault(desk: Desk, host: Host) -> None:
    """The code is tried again by a process of the next zygote."""
    once = str(desk.folder / "once")
    strike = f"open({once!r}, 'x'); os.kill(os.getppid(), 9); {HANG}"
    desk.module("my_tools", f"import os\nif not os.path.exists({once!r}): {strike}\n{MINE}")
    desk.check(host)
    assert (desk.folder / "once").exists()


@pytest.mark.parametrize(
    ("tools", "modules", "words"),
    [
        (("mine", "yours"), {}, "agents.lead.tools[1]: there is no tool yours; available: ask, de"),
        (("own",), {}, "agents.lead.tools[0]: there is no tool own; available: "),
        (
            ("aks",),
            {},
            "agents.lead.tools[0]: there is no tool aks; did you mean ask? available: a",
        ),
        (
            ("mine", "mein"),
            {},
            "agents.lead.tools[1]: there is no tool mein; did you mean mine? available: ask, del",
        ),
        (
            ("mine",),
            {"my_tools": f"{MINE}\n{MINE.replace('mine', 'ask')}"},
            "tools.ask: two tools are named ask: one in my_tools and [tools.ask] with the agent s",
        ),
        (
            ("ask",),
            {"my_tools": MINE.replace("mine", "ask")},
            "tools.ask: two tools are named ask: one in my_tools and [tools.ask] with the agent s",
        ),
        (
            ("mine",),
            {"my_tools": MINE.replace("mine", "read_file")},
            "tools.own.module: two tools are named read_file: one in actors.file_tools and one in",
        ),
        (
            ("note_write",),
            {"my_tools": MINE.replace("mine", "note_read")},
            "tools.own.module: two tools are named note_read: one in actors.note_tools and one in",
        ),
        (
            ("mine",),
            {"other": MINE},
            "tools.other.module: two tools are named mine: one in my_tools and one in other; ren",
        ),
    ],
)
def test_names_that_do_not_go_together_are_refused_at_their_key(
    desk: Desk, host: Host, tools: tuple[str, ...], modules: Mapping[str, str], words: str
) -> None:
    """A name that no module has, and each kind of clash; the words say what there is."""
    for name, text in modules.items():
        desk.module(name, text)
    desk.write(*tools, more=OTHER if "other" in modules else "")
    assert desk.refused(host).startswith(words)


def test_an_agent_below_the_root_is_checked_too(desk: Desk, host: Host) -> None:
    """Its own tools, and not only those of the agent that starts it."""
    desk.write("ask")
    desk.module("my_tools", MINE.replace("mine", "theirs"))
    assert desk.refused(host).startswith("agents.scout.tools[0]: there is no tool mine; available:")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere:late", "there is no module nowhere in /"),
        ("my_tools:late", "stop_when names my_tools:late, and my_tools has no function late"),
        ("my_tools:NAME", "stop_when names my_tools:NAME, and my_tools has no function NAME"),
        ("leaving:late", "loading the module leaving ended its process (exited with status 4)"),
        ("sys_exit:late", "the module sys_exit cannot be imported: SystemExit"),
    ],
)
def test_a_stop_condition_that_is_not_there_is_refused_at_its_key(
    desk: Desk, host: Host, path: str, words: str
) -> None:
    """Its module may be broken like one of tools, and what it names must be callable."""
    desk.module("my_tools", f"{MINE}\nNAME = 'late'\ndef early(state): return None")
    desk.module("leaving", "import os; os._exit(4)")
    desk.module("sys_exit", "import sys; sys.exit()")
    desk.write(stop_when=("my_tools:early", path))
    assert desk.refused(host).startswith(f"agents.lead.limits.stop_when[1]: {words}")


class NoSpawner:
    """Makes no process, as none must be asked for."""

    async def spawn(self, *_: object, **__: object) -> Process:
        raise AssertionError("a process was asked for")


async def test_without_a_module_of_the_users_no_process_is_started(desk: Desk) -> None:
    """What comes with Exeunt needs no such check."""
    text = desk.config.read_text().replace('module = "my_tools"', 'agent = "scout"')
    desk.config.write_text(text.replace('"mine"', '"read_file"'))
    await check_code(NoSpawner(), load_config(desk.config), desk.state.runs)


@pytest.mark.parametrize(("limit", "times"), [("", 1), ("[agents.scout.resources]\ncpu_s = 9", 2)])
def test_agents_share_a_process_unless_their_confinement_differs(
    desk: Desk, host: Host, limit: str, times: int
) -> None:
    """A large module is not loaded once for each agent."""
    desk.module("my_tools", f"open({str(desk.folder / 'loads')!r}, 'a').write('x')\n{MINE}")
    desk.write("mine", "ask", more=limit)
    desk.check(host)
    assert (desk.folder / "loads").read_text() == "x" * times


@needs_landlock
def test_the_check_is_confined_like_the_actor(desk: Desk, host: Host) -> None:
    """No code of the user's runs outside of the sandbox that its agent has."""
    desk.module("my_tools", f"open({str(desk.folder / 'outside')!r}, 'w')")
    desk.write("mine", more="[agents.lead.sandbox]\nlandlock = true")
    assert "PermissionError" in desk.refused(host)
    assert not (desk.folder / "outside").exists()
    desk.module("my_tools", MINE)
    desk.write("mine", "note_write", more="[agents.lead.sandbox]\nlandlock = true\nread = []")
    desk.check(host)
    desk.write(more=f'[agents.lead.sandbox]\nlandlock = true\n[tools.all]\nroot = "{desk.folder}"')
    text = desk.config.read_text().replace('root = "workspace"', f'root = "{desk.folder}"')
    desk.config.write_text(text.partition("[tools.all]")[0])
    assert desk.refused(host).startswith("agents.lead: the workspace /")


PORTS = """
import errno, socket
for port in ({ports}):
    with socket.socket() as channel:
        found = channel.connect_ex(("127.0.0.1", port))
        assert found == errno.EACCES, f"port {{port}}: {{errno.errorcode[found]}}"
"""


@needs_landlock
@pytest.mark.parametrize("kind", ["scripted", "openai"])
def test_the_check_reaches_no_port(desk: Desk, host: Host, kind: str) -> None:
    """It asks no provider, and agents that share it may have several."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        desk.module("my_tools", PORTS.format(ports=f"80, 443, {port}") + MINE)
        desk.write("mine", more="[agents.lead.sandbox]\nlandlock = true")
        if kind == "openai":
            served = f'kind = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:{port}/v1"'
            text = desk.config.read_text()
            desk.config.write_text(
                text.replace('kind = "scripted"\nscript = "destructive"', served)
            )
        desk.check(host)


@needs_landlock
def test_a_stop_condition_is_found_where_reading_is_confined(desk: Desk, host: Host) -> None:
    """Also where no tool is in a module beside it."""
    desk.module("my_tools", "def late(state): return None")
    caged = "[agents.lead.sandbox]\nlandlock = true\nread = []"
    desk.write("read_file", stop_when=("my_tools:late",), more=caged)
    text = desk.config.read_text().replace('[tools.own]\nmodule = "my_tools"', "")
    desk.config.write_text(text.replace('tools = ["mine"]', "tools = []"))
    desk.check(host)


def test_a_stop_does_not_wait_for_a_module_that_hangs(desk: Desk, host: Host) -> None:
    """The run is there, ended by the Stop's reason, and its actor has loaded nothing."""
    started = desk.folder / "started"
    desk.module("my_tools", f"open({str(started)!r}, 'a').write('x')\n{HANG}")

    async def test(supervisor: Supervisor) -> None:
        async def stop() -> None:
            while not started.exists():  # noqa: ASYNC110  # it is made by a process
                await trio.sleep(0.01)
            supervisor.stop("enough")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            report = await supervisor.run(load_config(desk.config), "r1")
        assert (report.status, report.exit_code) == ("interrupted", 6)

    desk.play(host, test)
    assert started.read_text() == "x"


def test_a_resume_without_the_module_changes_nothing(desk: Desk, host: Host) -> None:
    """It is refused as a run would be, and goes on once the module is back."""

    async def test(supervisor: Supervisor) -> None:
        report = await supervisor.run(load_config(desk.config), "r1")
        assert report.exit_code == 5
        before = desk.state.events("r1")
        desk.module("my_tools", "1 / 0")
        with pytest.raises(ConfigError, match=r"my\.toml: tools\.own\.module: .*ZeroDivisionError"):
            await supervisor.resume("r1")
        assert desk.state.events("r1") == before
        desk.module("my_tools", MINE)
        assert (await supervisor.resume("r1")).exit_code == 5

    desk.play(host, test)


@pytest.mark.slow
def test_a_run_is_refused_before_it_is_there(desk: Desk) -> None:
    """Exit code 2, one document, no run on disk; what was printed is told, and no key in it."""
    desk.module("my_tools", "import os\nprint('key:', os.environ.get('OPENAI_API_KEY'))\n1 / 0")
    code, document, told = desk.type_("run", "my.toml")
    assert code == 2
    assert document["error"].startswith(f"{desk.config}: tools.own.module: the module my_tools can")
    assert "exeunt: printed while modules were loaded: key: None\n" in told
    assert list(desk.state.runs.iterdir()) == []
    code, document, told = desk.type_("doctor", "my.toml")
    assert code == 1
    (tools,) = [one for one in document["checks"] if one["name"] == "tools"]
    assert "tools.own.module: the module my_tools cannot" in tools["detail"]
    assert "key: None" in told


@pytest.mark.slow
def test_edited_arguments_are_held_against_the_tool_elsewhere(desk: Desk) -> None:
    """A module that prints, or that ends its process, harms neither the command nor the verdict."""
    desk.module("my_tools", f"print('loaded')\n{MINE}")
    assert desk.type_("run", "my.toml", "--run-id", "r1")[0] == 5
    typed = ("approve", "r1", "2.0", "--no-resume", "--args")
    code, document, _ = desk.type_(*typed, '{"path": 3}')
    assert code == 2
    assert document["error"].startswith("--args: The arguments do not fit: Expected `str`, got `in")
    good = (desk.folder / "my_tools.py").read_text()
    desk.module("my_tools", "import os; os._exit(0)")
    code, document, _ = desk.type_(*typed, '{"path": "notes.txt"}')
    assert code == 2
    assert "nothing was recorded: " in document["error"]
    assert "tools.own.module: loading the module my_tools ended its process" in document["error"]
    desk.module("my_tools", good)
    code, document, _ = desk.type_(*typed, '{"path": "notes.txt"}')
    assert (code, document["recorded"]) == (0, True)
