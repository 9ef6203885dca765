"""A backend for joblib: `import gridbot.joblib`, then `with parallel_config("gridbot"):`.

scikit-learn and others that call joblib then run their tasks on GridBot's hosts, where joblib and
they must be installed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib.parallel import ParallelBackendBase, register_parallel_backend

from gridbot.executor.executor import Executor

_EXPECTED_WORKERS = 64  # for n_jobs=-1: how many hosts' cores there are is not known beforehand


class GridbotBackend(ParallelBackendBase):  # type: ignore[misc]
    """Runs tasks on a `gridbot.Executor`: the one given, or one of its own.

    Keyword arguments of `parallel_config` are those of `gridbot.Executor`, or `executor`.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self, nesting_level: int | None = None, inner_max_num_threads: int | None = None,
        executor: Executor | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(nesting_level, inner_max_num_threads)
        self._given, self._options = executor, options
        self._own: Executor | None = None
        self._futures: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many tasks to expect at once; joblib hands over twice as many."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        return _EXPECTED_WORKERS if n_jobs is None or n_jobs < 0 else n_jobs

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None
    ) -> Future[Any]:
        """Run a batch of tasks; `callback` gets the future when it is done."""
        future = self._executor().submit(operator.call, func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Value of a batch, or the exception that it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: ARG002
        """Cancel what was not sent yet."""
        for future in list(self._futures):
            future.cancel()

    def terminate(self) -> None:
        """End the executor, if it is our own."""
        if self._own is not None:
            self._own.shutdown(cancel_futures=True)
            self._own = None

    def _executor(self) -> Executor:
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = Executor(**self._options)
        return self._own


register_parallel_backend("gridbot", GridbotBackend)
