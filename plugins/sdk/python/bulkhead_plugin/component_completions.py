"""The component's side of suggestions. Like `component`, it exists in a component that exports them."""

from componentize_py_types import Err
from wit_world.exports import Completions as Exported
from wit_world.exports import completions as exported

from . import _offers, errors
from .component import call_error


class Completions(Exported):
    """What the host calls."""

    def complete(self, reference: exported.Reference, argument: exported.PartialArgument) -> exported.Completion:
        kind = "prompt" if isinstance(reference, exported.Reference_Prompt) else "resource"
        try:
            values, total = _offers.suggest(
                kind, reference.value, argument.name, argument.value, dict(argument.context)
            )
        except errors.CallError as error:
            raise Err(call_error(error)) from None
        return exported.Completion(values, total, total > len(values), [])
