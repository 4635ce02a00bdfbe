"""Fakes that ship with Exeunt: a provider that plays scripts, for demos and tests."""

from actors.testing.scripts import Call as Call
from actors.testing.scripts import Conversation as Conversation
from actors.testing.scripts import Say as Say
from actors.testing.scripts import script as script

__all__ = ["Call", "Conversation", "Say", "script"]
