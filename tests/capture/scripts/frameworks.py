"""Trains with loops of other libraries, about forty updates each: python frameworks.py [--callback] KIND...

Several kinds run in a process each. With --callback, those with a traceopt callback use it; it writes to `../logs`.
"""

from __future__ import annotations

import sys
from typing import Any

import quick_torch  # noqa: F401
import torch
from forked import run_forked
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

UPDATES = 40
BATCH = 4
LOGS = "../logs"

with_callback = "--callback" in sys.argv


class Printed:
    """A tracker: prints what it receives."""

    def log(self, logged: Any) -> None:
        print("logged", *sorted(file.name for file in logged.files))


def data(batches: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 50, (batches * BATCH, 8), generator=generator)
    return TensorDataset(inputs, torch.randint(0, 2, (batches * BATCH,), generator=generator))


def rows(batches: int) -> list[dict[str, Tensor]]:
    return [{"input_ids": x, "labels": y} for x, y in data(batches)]


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(64, 2))


def huggingface(**settings: Any) -> None:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback, TrainerCallback

    class Losses(TrainerCallback):
        def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
            print({name: value for name, value in logs.items() if name.endswith("loss")})

    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=8, num_labels=2, **size))
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        report_to=[],
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        **settings,
    )
    callbacks: list[Any] = [Losses()]
    if with_callback:
        from traceopt.huggingface import TraceoptCallback

        callbacks.append(TraceoptCallback(LOGS, log_to=Printed()))
    training = rows(UPDATES * settings.get("gradient_accumulation_steps", 1))
    trainer = Trainer(model, arguments, train_dataset=training, eval_dataset=rows(5), callbacks=callbacks)
    trainer.remove_callback(PrinterCallback)  # it prints times
    trainer.train()


def huggingface_accumulation() -> None:
    huggingface(gradient_accumulation_steps=4)


def huggingface_evaluation() -> None:
    """In the middle of the timing cycle, after its third step."""
    huggingface(eval_strategy="steps", eval_steps=11)


def lightning(**settings: Any) -> None:
    from lightning.pytorch import LightningModule, Trainer

    train_with_lightning(LightningModule, Trainer, **settings)


def lightning_under_its_other_name() -> None:
    from pytorch_lightning import LightningModule, Trainer

    train_with_lightning(LightningModule, Trainer)


def train_with_lightning(module: Any, trainer: Any, validated: bool = False, epochs: int = 1, **settings: Any) -> None:
    class Module(module):
        def __init__(self) -> None:
            super().__init__()
            self.model = small_model()

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            print(index, loss.item().hex())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    class Validated(Module):
        def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
            print("validated", index, nn.functional.cross_entropy(self.model(batch[0]), batch[1]).item().hex())

    callbacks: list[Any] = []
    if with_callback:
        from traceopt.lightning import TraceoptCallback

        callbacks.append(TraceoptCallback(LOGS, log_to=Printed()))
    trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        **settings,
    ).fit(
        Validated() if validated else Module(),
        DataLoader(data(UPDATES * settings.get("accumulate_grad_batches", 1) // epochs), batch_size=BATCH),
        DataLoader(data(8), batch_size=BATCH) if validated else None,
    )


def lightning_accumulation() -> None:
    """Validates before the first step and after every ten."""
    lightning(accumulate_grad_batches=4, validated=True, epochs=4)


def accelerated() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(data(UPDATES * 2), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item().hex())


KINDS = {
    "huggingface": huggingface,
    "huggingface_accumulation": huggingface_accumulation,
    "huggingface_evaluation": huggingface_evaluation,
    "lightning": lightning,
    "lightning_under_its_other_name": lightning_under_its_other_name,
    "lightning_accumulation": lightning_accumulation,
    "accelerated": accelerated,
}

IMPORTS = ("accelerate", "lightning.pytorch", "transformers.models.bert.modeling_bert", "transformers.trainer")

if __name__ == "__main__":
    kinds = [word for word in sys.argv[1:] if word in KINDS]
    if len(kinds) == 1:
        KINDS[kinds[0]]()
    else:
        run_forked(KINDS, kinds, imports=IMPORTS)
