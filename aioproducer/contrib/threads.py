"""A producer for code without an event loop: worker threads, Flask and Django views, scripts.

    with ThreadedProducer("localhost:9092") as producer:
        sent = producer.send("orders", b"value", key=b"customer-7")

For programs with an event loop that sometimes send from a thread, see docs/concurrency.md.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from aioproducer import (
    ConfigError,
    Producer,
    ProducerClosed,
    ProducerConfig,
    ProducerOptions,
    State,
    WrongLoop,
)

EXIT_MARGIN_S: Final = 10.0
"""Time beyond the delivery timeout that the end of the program waits for a producer to close, in seconds."""
TASKS_WAIT_S: Final = 1.0
"""Time that the thread waits for other tasks of its event loop after the close, in seconds."""

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Producer, P], Coroutine[Any, Any, T]],
) -> Callable[[object], Callable[Concatenate[ThreadedProducer, P], T]]:
    """Return a decorator that replaces a method by a blocking call of *method* with the same parameters.

    Type checkers let subclasses override a decorated method, and reject the override of a Final attribute.
    """

    @wraps(method)
    def call(self: ThreadedProducer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(partial(method, self._producer, *args, **kwargs))

    return lambda _: call


def _with_thread_future(
    method: Callable[Concatenate[Producer, P], Coroutine[Any, Any, asyncio.Future[T]]],
) -> Callable[Concatenate[Producer, P], Coroutine[Any, Any, Future[T]]]:
    """Return *method* with a `concurrent.futures.Future` as its result."""

    @wraps(method)
    async def call(producer: Producer, /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        appended = await method(producer, *args, **kwargs)
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()  # an appended record cannot be cancelled
        appended.add_done_callback(partial(_pass_on, outcome))
        return outcome

    return call


def _pass_on(outcome: Future[T], appended: asyncio.Future[T]) -> None:
    error = appended.exception()
    if error is None:
        outcome.set_result(appended.result())
    else:
        outcome.set_exception(error)


def _submit(call: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop) -> Future[T]:
    """Run *call* on *loop*. Raises: ProducerClosed if a signal handler has closed the producer."""
    calling = call()
    outcome: Future[T] | None = None
    with suppress(RuntimeError):  # the loop is closed
        outcome = asyncio.run_coroutine_threadsafe(calling, loop)
    if outcome is None or (loop.is_closed() and not outcome.done()):
        calling.close()
        raise ProducerClosed("the producer is closed")
    return outcome


def _check_thread() -> None:
    """Raise WrongLoop if this thread runs an event loop. Under gevent and eventlet all threads are greenlets of one thread."""
    try:
        other = asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongLoop(
        f"ThreadedProducer: its thread already runs {other!r}, and asyncio allows one event loop per thread;"
        " under gevent or eventlet share one ThreadedProducer, and run no other event loop"
    )


class ThreadedProducer:
    """A `Producer` on its own thread and event loop. Its calls block, and any thread may call them.

    Records of concurrent threads share batches; each thread's records keep their order. `enqueue` returns a
    `concurrent.futures.Future`, whose `cancel()` has no effect. Ctrl-C cancels the current call.

    All calls raise ProducerClosed before the start and after the end. Calls raise WrongLoop in a forked child, and in
    user code that runs on the producer's thread (interceptors, serializers, callbacks of Futures).
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        try:
            producer = Producer(bootstrap_servers, **options)
        except ConfigError:
            del options  # this frame goes into the traceback
            raise
        self._begin(producer)

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self:
        """Return a producer with the configuration *config*."""
        threaded = cls.__new__(cls)
        threaded._begin(Producer.from_config(config))  # noqa: SLF001 - of this package
        return threaded

    def _begin(self, producer: Producer) -> None:
        self._producer = producer
        # Guards the hand-over of a call to the open loop. Reentrant, because signal handlers may call the producer.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._must_end: asyncio.Event
        self._pid: int

    @property
    def config(self) -> ProducerConfig:
        """Configuration of the producer."""
        return self._producer.config

    @property
    def state(self) -> State:
        """State of the producer."""
        return self._producer.state

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close, and wait for the outcomes of all sent records."""
        self.close()

    def start(self, *, wait: bool | None = None, timeout_s: float | None = None) -> None:
        """Start the thread and its producer. The end of the program closes a producer that is still open.

        *wait* and *timeout_s* are those of `Producer.start`.

        Raises: ConnectionFailed (a retry is allowed); ProducerClosed after an earlier start; RuntimeError if no thread can
            be started; WrongLoop if the thread cannot run an event loop, as under gevent with another event loop.
        """
        self._check_process()
        with self._lock:
            if self._thread is not None:
                raise ProducerClosed(f"a producer is started once; this one is {self.state}")
            loop, self._must_end, self._pid = asyncio.new_event_loop(), asyncio.Event(), os.getpid()
            runs: Future[None] = Future()
            thread = threading.Thread(
                target=self._run, args=(loop, self._must_end, runs), name="aioproducer", daemon=True
            )
            try:
                thread.start()
            except BaseException:  # for example, the limit of threads or memory
                loop.close()
                raise
            self._thread, self._loop = thread, loop
        try:
            runs.result()
            self._call(partial(self._producer.start, wait=wait, timeout_s=timeout_s))
        except BaseException:
            self._end()
            self._thread = None
            raise
        # After all non-daemon threads, which may send until they end.
        atexit.register(self._close_at_exit)

    @_blocking(Producer.send)
    def send(self) -> None:
        """See `Producer.send`."""

    @_blocking(_with_thread_future(Producer.enqueue))
    def enqueue(self) -> None:
        """See `Producer.enqueue`; the Future is a `concurrent.futures.Future`."""

    @_blocking(Producer.send_many)
    def send_many(self) -> None:
        """See `Producer.send_many`."""

    @_blocking(Producer.flush)
    def flush(self) -> None:
        """See `Producer.flush`."""

    @_blocking(Producer.partitions_for)
    def partitions_for(self) -> None:
        """See `Producer.partitions_for`."""

    def metrics(self) -> dict[str, dict[Any, Any]]:
        """Return `Producer.metrics()`. Never blocks, and works before the start and after the end."""
        return self._producer.metrics()

    def close(self, timeout_s: float | None = None) -> int:
        """Close the producer as `Producer.close` does, and end the thread. An interrupt acts as `close(0)`."""
        return self._close(timeout_s)

    def _close_at_exit(self) -> None:
        """Close at the end of the program, with a time limit for user code that never returns."""
        with suppress(TimeoutError):
            self._close(None, wait_s=self.config.delivery_timeout_ms / 1000 + EXIT_MARGIN_S)

    def _close(self, timeout_s: float | None, *, wait_s: float | None = None) -> int:
        if self._thread is None or os.getpid() != self._pid:
            return 0
        try:
            failed = self._call(partial(self._producer.close, timeout_s), wait_s)
        except ProducerClosed:  # another thread closed the producer
            failed = 0
        except KeyboardInterrupt:
            self._end()
            raise
        self._end(wait_s)
        return failed

    def _call(self, call: Callable[[], Coroutine[Any, Any, T]], wait_s: float | None = None) -> T:
        self._check_process()
        if threading.current_thread() is self._thread:
            raise WrongLoop(
                "called on the producer's own thread, where a blocking call would deadlock; call from another thread"
            )
        with self._lock:
            loop = self._loop
            if loop is None:
                raise ProducerClosed(f"the producer is {'closed' if self._thread else 'not started'}")
            outcome = _submit(call, loop)
        try:
            return outcome.result(wait_s)
        finally:
            outcome.cancel()  # cancels an interrupted call; no effect otherwise

    def _check_process(self) -> None:
        if self._thread is not None and os.getpid() != self._pid:
            raise WrongLoop(
                "the producer's thread belongs to the parent process; create a new producer in the child"
            )

    def _run(self, loop: asyncio.AbstractEventLoop, over: asyncio.Event, runs: Future[None]) -> None:
        living = self._run_loop(over, runs)
        try:
            _check_thread()
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(living)
        except BaseException as error:
            if runs.done():
                raise
            living.close()
            loop.close()
            runs.set_exception(error)
        finally:
            if self.state is not State.NEW:
                self._producer._end()  # noqa: SLF001 - user code may have ended the loop

    async def _run_loop(self, over: asyncio.Event, runs: Future[None]) -> None:
        runs.set_result(None)
        try:
            await over.wait()
        finally:
            self._loop = None  # also after sys.exit() in user code
        if self.state is not State.NEW:
            await self._producer.close(0)  # has an effect only after an interrupted close
        if calls := asyncio.all_tasks() - {asyncio.current_task()}:
            # Calls only have to return their outcome, but user code may have started other tasks.
            await asyncio.wait(calls, timeout=TASKS_WAIT_S)

    def _end(self, wait_s: float | None = None) -> None:
        atexit.unregister(self._close_at_exit)
        with self._lock:
            loop = self._loop
            if loop is not None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._must_end.set)
                self._loop = None
        if self._thread is not None:
            self._thread.join(wait_s)
