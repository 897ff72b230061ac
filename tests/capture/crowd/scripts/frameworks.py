"""Loops that a framework runs: python frameworks.py KIND."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset
from true_steps import seed_everything, true_step


class Sentences(Dataset[dict[str, Tensor]]):
    """Rows that are tokenized when they are asked for."""

    def __init__(self, count: int, tokenize_s: float) -> None:
        self.count, self.tokenize_s = count, tokenize_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Tensor]:  # planted
        time.sleep(self.tokenize_s)  # planted
        return {"input_ids": torch.arange(index, index + 8) % 50, "labels": torch.tensor(index % 2)}


def lightning() -> None:
    """A sanity check first, a validation after each epoch, a checkpoint callback, a learning rate schedule."""
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Classifier(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layers = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(64, 2))

        def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
            loss = functional.cross_entropy(self.layers(batch["input_ids"]), batch["labels"])
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: dict[str, Tensor], _: int) -> None:
            self.log("val_loss", functional.cross_entropy(self.layers(batch["input_ids"]), batch["labels"]))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)]

        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            super().optimizer_step(*args, **kwargs)
            true_step()

        def on_validation_epoch_end(self) -> None:
            print(f"validated: {self.trainer.callback_metrics['val_loss'].item():.8f}")

    seed_everything(0)
    trainer = Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        callbacks=[ModelCheckpoint("checkpoints", monitor="val_loss")],
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=2,
    )
    loader = DataLoader(Sentences(160, 0.003), batch_size=4, shuffle=True)
    trainer.fit(Classifier(), loader, DataLoader(Sentences(24, 0.0), batch_size=4))


def huggingface() -> None:
    """A Trainer with gradient accumulation and evaluations."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback, TrainerCallback

    class Report(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            true_step()

        def on_log(self, *_: Any, logs: dict[str, Any], **__: Any) -> None:
            print({name: value for name, value in logs.items() if name.endswith("loss") and name != "train_loss"})

    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        eval_strategy="steps",
        eval_steps=25,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=8, num_labels=2, **size)),
        arguments,
        train_dataset=Sentences(480, 0.004),
        eval_dataset=Sentences(16, 0.0),
        callbacks=[Report()],
    )
    trainer.remove_callback(PrinterCallback)  # it prints times
    trainer.train()


def accelerate() -> None:
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=60)
    data = DataLoader(TensorDataset(torch.randn(480, 16), torch.randint(0, 4, (480,))), batch_size=4, shuffle=True)
    model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
    history = torch.zeros(1 << 21)
    for index, (x, y) in enumerate(data):
        with accelerator.accumulate(model):
            loss = functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                true_step()
                state = {"model": accelerator.unwrap_model(model).state_dict(), "history": history}
                accelerator.save(state, "model.bin")  # planted
        if index % 40 == 0:
            accelerator.print(f"loss {loss.item():.8f}")


if __name__ == "__main__":
    seed_everything()
    {kind.__name__: kind for kind in (lightning, huggingface, accelerate)}[sys.argv[1]]()
