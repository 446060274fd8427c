"""The component's side of prompts. Like `component`, it exists in a component that exports them."""

from componentize_py_types import Err
from wit_world.exports import Prompts as Exported
from wit_world.exports import prompts as exported

from . import _offers, _output, errors
from .component import call_error, content, icons, meta
from .component_types import types


class Prompts(Exported):
    """What the host calls."""

    def list_prompts(self) -> list[exported.Prompt]:
        return [_described(known) for known in _offers.PROMPTS.values()]

    def get_prompt(self, name: str, arguments: list[tuple[str, str]]) -> exported.PromptOutput:
        try:
            description, said = _offers.fill_in(name, dict(arguments))
        except errors.CallError as error:
            raise Err(call_error(error)) from None
        messages = [message for one in said for message in _messages(one)]
        return exported.PromptOutput(description, messages, [])


def _described(known: _offers.Prompt) -> exported.Prompt:
    arguments = [
        exported.PromptArgument(argument.name, None, argument.description, argument.required)
        for argument in known.arguments
    ]
    return exported.Prompt(
        known.name, known.title, known.description, arguments, icons(known.icons), meta(known.meta)
    )


def _messages(said: _offers.Message) -> list[exported.PromptMessage]:
    whole = said.content if isinstance(said.content, _output.Output) else _output.Output().text(said.content)
    role = types.Role[said.role.upper()]
    return [exported.PromptMessage(role, content(block)) for block in whole.blocks]
