"""brorl: reinforcement learning with verifiable rewards and wide rollouts."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from brorl.train.api import train as train

__all__ = ["__version__", "train"]


def __getattr__(name: str) -> Any:
    """Import `train` on first use, so that `import brorl` needs neither torch nor a second."""
    if name == "train":
        from brorl.train.api import train

        return train
    raise AttributeError(f"module 'brorl' has no attribute {name!r}")
