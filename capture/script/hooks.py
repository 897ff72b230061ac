"""Attaches the agent to a newly imported torch: calls by the script reach the step tracker and the ledger.

Every wrapper calls the original whatever happens in traceopt, and Dynamo never compiles one.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..metadata.loading.loaders import WorkerClock
from ..metadata.loading.opened_files import OpenedFiles
from ..metadata.step_ledger import LedgerWriter
from ..recording.memory_snapshots import MemorySnapshots
from ..recording.recorder import Recorder
from ..recording.timed_steps import TimedSteps
from ..settings import load_settings
from ..start_up.start_up import StartUp
from . import endings, scripts_profiler
from .closing_optimizer import OptimizerRoles
from .dynamo import Dynamo
from .evaluation_mode import EvaluationMode
from .imports import when_imported
from .inference_steps import InferenceSteps
from .step_on import GivenSteps
from .step_tracker import StepTracker
from .switches import seeds, switches

Function = Callable[..., Any]

# The classes that configure a training framework, by module: package of the framework, class, and its constructor.
FRAMEWORK_SETTINGS = {
    "transformers.training_args": ("transformers", "TrainingArguments", "__post_init__"),
    "lightning.pytorch.trainer.trainer": ("lightning", "Trainer", "__init__"),
    "pytorch_lightning.trainer.trainer": ("lightning", "Trainer", "__init__"),
    "accelerate.accelerator": ("accelerate", "Accelerator", "__init__"),
}


def attach(torch: Any, control: str, start_up: StartUp) -> None:
    """Patches torch in this process, according to the settings in the control folder."""
    settings = load_settings(os.path.join(control, "settings.json"))
    if settings.timed is not None:
        start_up.give_up()
    recorder = Recorder(torch, settings, control, start_up)
    hooks = Hooks(torch, recorder, StepTracker(recorder, settings.step_on))
    recorder.ledger.watch_gc()
    hooks.patch_optimizers()
    hooks.patch_zero_grad()
    hooks.patch_backward()
    hooks.patch_saved_tensors_hooks()
    hooks.patch_grad_scalers()
    hooks.patch_save()
    hooks.patch_frameworks()
    hooks.patch_anomaly_mode()
    when_imported("torch.nn.parallel.distributed", hooks.patch_ddp)
    calls = InferenceSteps(hooks.dynamo, hooks.tell, hooks.tracker.model_called)
    EvaluationMode(torch, hooks.tracker, hooks.dynamo, recorder.status.note, calls.watch).watch()
    if settings.step_on:
        GivenSteps(torch, recorder, hooks.tracker, hooks.dynamo, hooks.tell).watch(settings.step_on)
    when_imported("torch.utils.data.dataloader", hooks.patch_loader)
    clock = WorkerClock(control)
    when_imported("torch.utils.data._utils.fetch", lambda loaded: _time_batches(loaded, clock, hooks.dynamo))
    if recorder.timed is not None:
        seeds.fix(torch, recorder.timed)
        switches.turn_on(torch, recorder.timed, hooks.dynamo)
    recorder.watch_memory()
    scripts_profiler.watch(torch, recorder)
    endings.watch(recorder, hooks.tracker)


class Hooks:
    def __init__(self, torch: Any, recorder: Recorder, tracker: StepTracker) -> None:
        self._torch = torch
        self._recorder = recorder
        self.tracker = tracker
        self._roles = OptimizerRoles()
        self.dynamo = Dynamo(torch, lambda text: recorder.status.note(text))
        self._exclude = self.dynamo.exclude
        called_directly = (LedgerWriter._gc, Recorder._gc_range, MemorySnapshots.out_of_memory, OpenedFiles.open)
        for function in (Hooks.tell, Hooks.note, *called_directly):
            self._exclude(function, with_callees=True)

    def tell(self, signal: Callable[..., None], *arguments: Any) -> None:
        """Passes a signal about steps on. SystemExit is not caught: --stop-after ends the run with it."""
        paused = self.dynamo.pause()
        try:
            signal(*arguments)
        except Exception as error:
            with suppress(Exception):  # the script may have replaced what both call, such as open()
                self._recorder.give_up(f"{type(error).__name__}: {error}")
        finally:
            self.dynamo.resume(paused)

    def note(self, signal: Callable[..., None], *arguments: Any) -> None:
        """Passes on what describes the run. If that fails, the description lacks it, and recording goes on."""
        paused = self.dynamo.pause()
        try:
            signal(*arguments)
        except Exception as error:
            self._recorder.status.note(f"step {self._recorder.step}: {type(error).__name__}: {error}")
        finally:
            self.dynamo.resume(paused)

    def patch_optimizers(self) -> None:
        """Wraps outside of torch's own wrapper, so that the range Optimizer.step#... is closed when the step ends."""
        tracker, tell, note, is_compiling = self.tracker, self.tell, self.note, self.dynamo.is_compiling
        recorder, optimizer = self._recorder, self._torch.optim.Optimizer
        self._note_construction(optimizer, "__init__", self._constructed_optimizer)
        hook_step = optimizer.profile_hook_step

        def profile_hook_step(function: Function) -> Function:
            wrapped = hook_step(function)

            @functools.wraps(wrapped)
            @self._exclude
            def step(*args: Any, **kwargs: Any) -> Any:
                if is_compiling():
                    return wrapped(*args, **kwargs)
                tracker.inside_update += 1
                try:
                    result = wrapped(*args, **kwargs)
                finally:
                    tracker.inside_update -= 1
                if not tracker.inside_update:
                    note(recorder.run.updated, args[0])
                    tell(self._updated, args[0])
                return result

            # Torch 2.1's Dynamo unwraps it, and must find the same function as without traceopt.
            step.__wrapped__ = function
            return step

        optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def _constructed_optimizer(self, optimizer: Any) -> None:
        self._recorder.run.constructions.optimizer(optimizer)
        self._roles.made(optimizer)

    def _updated(self, optimizer: Any) -> None:
        self.tracker.update(*self._roles.of(optimizer), self._roles.others_wait)

    def patch_zero_grad(self) -> None:
        tracker, tell, is_compiling = self.tracker, self.tell, self.dynamo.is_compiling
        optimizer = self._torch.optim.Optimizer
        zero = optimizer.zero_grad

        @functools.wraps(zero)
        @self._exclude
        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                tell(tracker.zero_grad)
            return zero(*args, **kwargs)

        optimizer.zero_grad = zero_grad

    def patch_backward(self) -> None:
        """Tensor.backward looks this function up at every call."""
        autograd, tracker, note, is_compiling = self._torch.autograd, self.tracker, self.note, self.dynamo.is_compiling
        original, recorder, tell = autograd.backward, self._recorder, self.tell
        cleared = recorder.run.cleared_gradients

        @functools.wraps(original)
        @self._exclude
        def backward(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            tell(tracker.backward_begins)
            if cleared.active:
                note(cleared.backward_begins, recorder.step)
            loss = args[0] if args else kwargs.get("tensors")
            if recorder.timed is not None:
                note(recorder.timed.losses.reached_backward, loss, recorder.step)
            else:
                note(recorder.backward_begins, loss)
            try:
                return original(*args, **kwargs)
            finally:
                note(recorder.run.updated)
                tell(tracker.backward_ends)

        autograd.backward = backward

    def patch_saved_tensors_hooks(self) -> None:
        """Checkpoints enter such hooks too."""
        kind, values = self._torch.autograd.graph.saved_tensors_hooks, self._recorder.run.values
        original = kind.__enter__

        @functools.wraps(original)
        @self._exclude
        def enter(self: Any) -> Any:
            values.hooked = True
            return original(self)

        kind.__enter__ = enter

    def patch_grad_scalers(self) -> None:
        """A step that the scaler skips because of an inf counts as a step, too."""
        for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = getattr(sys.modules.get(name), "GradScaler", None)
            if scaler is not None and "step" in vars(scaler):
                self._patch_grad_scaler(scaler)

    def _patch_grad_scaler(self, scaler: Any) -> None:
        recorder, tracker, tell, updated = self._recorder, self.tracker, self.tell, self._updated
        original = scaler.step

        @functools.wraps(original)
        @self._exclude
        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = tracker.updates
            result = original(self, optimizer, *args, **kwargs)
            if tracker.updates == before and self.is_enabled():
                recorder.ledger.skipped_updates += 1
                tell(updated, optimizer)
            return result

        scaler.step = step
        if recorder.timed is not None:
            scaler.scale = self._remembering_scale(scaler.scale, recorder.timed)

    def _remembering_scale(self, original: Function, timed: TimedSteps) -> Function:
        @functools.wraps(original)
        @self._exclude
        def scale(self: Any, outputs: Any) -> Any:
            result = original(self, outputs)
            timed.losses.scaled(self._scale if self.is_enabled() else None)
            return result

        return scale

    def patch_save(self) -> None:
        torch, recorder, note = self._torch, self._recorder, self.note
        original = torch.save

        def is_part(args: tuple[Any, ...]) -> bool:
            """Pickling a tensor calls save for its storage."""
            return bool(args) and type(args[0]).__name__.endswith("Storage")

        @functools.wraps(original)
        @self._exclude
        def save(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                if not is_part(args):
                    note(recorder.ledger.saved, time.perf_counter() - began)

        torch.save = save

    def patch_frameworks(self) -> None:
        """Notes where the script configures its training framework."""
        for module, (framework, kind, constructor) in FRAMEWORK_SETTINGS.items():

            def patch(
                loaded: Any, framework: str = framework, kind: str = kind, constructor: str = constructor
            ) -> None:
                note = functools.partial(self._recorder.run.constructions.framework, framework)
                self._note_construction(getattr(loaded, kind), constructor, note)

            when_imported(module, patch)

    def patch_anomaly_mode(self) -> None:
        note = functools.partial(self._recorder.run.constructions.anomaly_mode, self._torch.is_anomaly_enabled)
        self._note_construction(self._torch.autograd.set_detect_anomaly, "__init__", note)

    def patch_ddp(self, distributed: Any) -> None:
        self._note_construction(distributed.DistributedDataParallel, "__init__", self._recorder.run.constructions.ddp)

    def _note_construction(self, kind: Any, constructor: str, note: Callable[[Any], None]) -> None:
        """Calls `note` with every object of a class, at the end of its constructor."""
        original, tell = getattr(kind, constructor), self.note

        @functools.wraps(original)
        @self._exclude
        def construct(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            tell(note, self)

        setattr(kind, constructor, construct)

    def patch_loader(self, dataloader: Any) -> None:
        recorder, tracker, tell, note = self._recorder, self.tracker, self.tell, self.note
        self._note_construction(dataloader.DataLoader, "__init__", recorder.run.constructions.loader)
        gradients = self._torch.is_grad_enabled
        iterator, workers = dataloader._BaseDataLoaderIter, dataloader._MultiProcessingDataLoaderIter
        create, start_workers, advance = iterator.__init__, workers.__init__, iterator.__next__
        inside = threading.local()  # a dataset may read a DataLoader itself

        def remember(instance: Any, loader: Any) -> None:
            instance._traceopt_loader = key = recorder.run.iterated(loader)
            instance._traceopt_iterator = recorder.run.loaders.iterator(key)

        @functools.wraps(create)
        @self._exclude
        def init(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            create(self, loader, *args, **kwargs)
            note(remember, self, loader)

        @functools.wraps(start_workers)
        @self._exclude
        def init_workers(self: Any, *args: Any, **kwargs: Any) -> None:
            began = time.perf_counter()
            start_workers(self, *args, **kwargs)
            seconds, key = time.perf_counter() - began, getattr(self, "_traceopt_loader", 0)
            note(recorder.run.workers_started, key, recorder.step, seconds, [worker.pid for worker in self._workers])

        @functools.wraps(advance)
        @self._exclude
        def next_batch(self: Any) -> Any:
            if getattr(inside, "fetch", False):
                return advance(self)
            inside.fetch = True
            try:
                loader, number = getattr(self, "_traceopt_loader", 0), getattr(self, "_traceopt_iterator", 0)
                tell(tracker.fetch, loader, gradients())
                note(recorder.run.fetching)
                began, cpu_began, ended, batch = time.perf_counter(), time.thread_time(), True, None
                try:
                    batch = advance(self)
                    ended = False
                    return batch
                finally:
                    seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu_began
                    note(recorder.run.fetched, loader, number, batch, seconds, cpu_seconds, ended)
            finally:
                inside.fetch = False

        iterator.__init__, iterator.__next__ = init, next_batch
        workers.__init__ = init_workers


def _time_batches(fetch_module: Any, clock: WorkerClock, dynamo: Dynamo) -> None:
    """Measures, inside the DataLoader's workers, how long each batch takes to build."""

    def timed(original: Function) -> Function:
        @functools.wraps(original)
        @dynamo.exclude
        def fetch(self: Any, index: Any) -> Any:
            if not clock.in_worker():
                return original(self, index)
            began, cpu_began = time.perf_counter(), time.process_time()
            try:
                return original(self, index)
            finally:
                clock.built(time.perf_counter() - began, time.process_time() - cpu_began, self.dataset)

        return fetch

    for kind in (fetch_module._MapDatasetFetcher, fetch_module._IterableDatasetFetcher):
        kind.fetch = timed(kind.fetch)
