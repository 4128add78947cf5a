"""What a request may ask of the search: judged by the settings.

Jobs and the lines of batches are judged alike. Knows names of models, not what they are.
"""

from collections.abc import Mapping
from typing import Any

from spool.errors import UnknownModel
from spool.jobs import AskedOptions
from spool.settings import Settings


def judged(settings: Settings, *told: Mapping[str, Any]) -> AskedOptions:
    """The options of `told`, the later ones over the earlier, over the server's own.

    Raises pydantic's ValidationError, and UnknownModel.
    """
    asked: dict[str, Any] = {"model": settings.default_model}
    for each in told:
        asked |= each
    known = {"language_models": sorted(settings.language_models)}
    options = AskedOptions.model_validate(asked, context=known)
    if options.model not in settings.models:
        raise UnknownModel(
            f"There is no model {options.model!r}; known here: {', '.join(sorted(settings.models))}."
        )
    return options
