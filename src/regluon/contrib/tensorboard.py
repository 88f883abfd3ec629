"""A callback that writes metrics where TensorBoard reads them."""

from __future__ import annotations

from typing import Any

__all__ = ["LogMetricsCallback"]


class LogMetricsCallback:
    """A batch-end or epoch-end callback of `Module.fit` that logs the metric's values.

    Parameters
    ----------
    logging_dir : path
        The folder that TensorBoard shows.
    prefix : str, optional
        Beginning of the values' names, such as "train".

    Raises
    ------
    ImportError
        When the package tensorboard is not installed.
    """

    def __init__(self, logging_dir: Any, prefix: str | None = None) -> None:
        self.prefix = prefix
        self.step = 0
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "LogMetricsCallback writes with the package tensorboard, which is not installed: "
                "pip install tensorboard"
            ) from error
        self.summary_writer = SummaryWriter(logging_dir)

    def __call__(self, param: Any) -> None:
        """Log the values of ``param.eval_metric``, one step after those before."""
        self.step += 1
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            shown = name if self.prefix is None else f"{self.prefix}-{name}"
            self.summary_writer.add_scalar(shown, value, self.step)
