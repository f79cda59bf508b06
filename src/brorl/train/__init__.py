"""The trainer. The package itself can be called: `brorl.train(recipe, **overrides)`.

`import brorl.train.api` binds the name `brorl.train` to this package, whatever was there before;
so that the name stays a function to the user, the module is one as well.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """A module that trains when it is called."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """See `brorl.train.api.train`."""
        from brorl.train.api import train

        return train(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
