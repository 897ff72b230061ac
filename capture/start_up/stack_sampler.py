"""Samples the Python stack of the main thread while a process starts up.

It runs before the script does, so it imports only modules that are part of the interpreter. The script must not notice
it: the thread is unknown to `threading`, receives no signals, and is gone while the process forks.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has only the module that wraps it
import _thread
import atexit
import gc
import os
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType

Stack = tuple[list[CodeType], list[int]]  # code and current instruction of each frame, the innermost first

INTERVAL_S = 0.05
SAMPLES_OF_EACH_TIME = 1000  # the interval grows with the time, so a process that never trains costs nothing
MOST_FRAMES = 250  # of one stack, the innermost ones
IMPORT_SYSTEM = "<frozen importlib._bootstrap"  # and _bootstrap_external
FORK_S = 0.05  # a fork has returned by then
THREAD_ENDS_S = 1.0

_TASKS = "/proc/self/task"
_FRAMES_MOVE = sys.version_info[:2] == (3, 11)  # while another thread reads them, if it collects garbage meanwhile
_WARNS_ABOUT_THREADS = sys.version_info >= (3, 12)  # at a fork


class _Sampling:
    """One run of the sampling thread; a fork ends it, and another one goes on."""

    def __init__(self) -> None:
        self.stop = _thread.allocate_lock()
        self.ended = _thread.allocate_lock()
        self.stop.acquire()
        self.ended.acquire()
        self.thread_id: int | None = None  # the operating system's


class StackSampler:
    """`stacks` are the stacks in the order in which they were seen, with seconds; an empty one is no Python code.

    `began` is when the sampler was created, as time.perf_counter() says it. `lost`: the stacks are those of another
    process or thread.
    """

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.stacks: list[tuple[Stack, float]] = []
        self.cost_s = 0.0  # CPU time of the thread
        self.lost = False
        self.thread = _thread.get_ident()
        self._sampling: _Sampling | None = None
        self._paused_at: float | None = None  # by a fork
        self._watches_forks = False

    def start(self) -> None:
        """Does nothing where stacks cannot be sampled safely."""
        if self._sampling is not None or not getattr(sys, "_is_gil_enabled", lambda: True)():
            return
        self._paused_at = None
        sampling = _Sampling()
        try:
            if not self._watches_forks and hasattr(os, "register_at_fork"):
                os.register_at_fork(before=self._pause, after_in_parent=self._go_on, after_in_child=self._forget)
            if not self._watches_forks:
                atexit.register(self.stop)
            self._watches_forks = True
            _start_without_signals(self._run, sampling)
        except (RuntimeError, OSError, ValueError):  # no more threads
            return
        self._sampling = sampling

    def stop(self) -> None:
        """Returns when the thread has ended."""
        sampling, self._sampling, self._paused_at = self._sampling, None, None
        if self._go_on_later in gc.callbacks:
            gc.callbacks.remove(self._go_on_later)
        if sampling is None:
            return
        sampling.stop.release()
        sampling.ended.acquire(timeout=THREAD_ENDS_S)

    def _run(self, sampling: _Sampling) -> None:
        try:
            sampling.thread_id = _thread.get_native_id()
            before = time.perf_counter()
            while not sampling.stop.acquire(timeout=max(INTERVAL_S, (before - self.began) / SAMPLES_OF_EACH_TIME)):
                stack = self._stack()
                now = time.perf_counter()
                self.stacks.append((stack, now - before))
                before = now
            self.cost_s += time.thread_time()
        except Exception:  # the interpreter ends, or is out of memory: what was seen so far is kept
            return
        finally:
            sampling.ended.release()

    def _stack(self) -> Stack:
        """On Python 3.11 a frame gets its object when it is read. The garbage collector can run then, and with it code
        that lets the main thread return from this very frame: a segmentation fault. Later versions collect only
        between two instructions.
        """
        collects = _FRAMES_MOVE and gc.isenabled()
        if collects:
            gc.disable()
        try:
            return stack_of(sys._current_frames().get(self.thread))
        finally:
            if collects:
                gc.enable()

    def _pause(self) -> None:
        """Before a fork: Python 3.12 warns if the process has threads, and a child inherits the locks they hold."""
        sampling = self._sampling
        if sampling is None and self._paused_at is None:
            return
        self.stop()
        self._paused_at = time.perf_counter()
        until = self._paused_at + FORK_S
        while sampling is not None and os.path.exists(f"{_TASKS}/{sampling.thread_id}") and time.perf_counter() < until:
            time.sleep(0)

    def _go_on(self) -> None:
        """After a fork. The warning counts the threads after this call."""
        if self._paused_at is None:
            return
        if _WARNS_ABOUT_THREADS and not _has_threads():
            gc.callbacks.append(self._go_on_later)
        else:
            self.start()

    def _go_on_later(self, *_: object) -> None:
        """Called by the garbage collector, which must not lose a callback meanwhile: `stop` removes this one."""
        if self._paused_at is not None and time.perf_counter() > self._paused_at + FORK_S:
            self.start()

    def _forget(self) -> None:
        self._sampling, self._paused_at = None, None
        self.stacks = []
        self.lost = True


def stack_of(frame: FrameType | None) -> Stack:
    """Holds no frame, because a frame keeps the script's objects alive. Instructions, because to look up a line takes
    long in a large module. Of frames of the import system in a row, one is enough. Two lists, because an object for
    each frame would make the garbage collector run more often.
    """
    codes: list[CodeType] = []
    instructions: list[int] = []
    importing = False
    while frame is not None and len(codes) < MOST_FRAMES:
        code = frame.f_code
        was, importing = importing, code.co_filename.startswith(IMPORT_SYSTEM)
        if not (was and importing):
            codes.append(code)
            instructions.append(frame.f_lasti)
        frame = frame.f_back
    return codes, instructions


def _start_without_signals(run: Callable[[_Sampling], None], sampling: _Sampling) -> None:
    """A new thread inherits which signals are blocked: the script's other threads go on receiving them."""
    if not hasattr(_signal, "pthread_sigmask"):
        _thread.start_new_thread(run, (sampling,))
        return
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    try:
        _thread.start_new_thread(run, (sampling,))
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


def _has_threads() -> bool:
    try:
        return len(os.listdir(_TASKS)) > 1
    except OSError:
        return False
