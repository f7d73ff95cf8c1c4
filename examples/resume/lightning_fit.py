"""A fit of PyTorch Lightning, resumable by its own checkpoints within those of ``run``.

Usage: lightning_fit.py EPOCHS [SEED]
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import lightning
import torch
from orchestrate_run import run
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.2), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.network(inputs).squeeze(-1), targets)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Resumable(lightning.Callback):
    def setup(self, trainer, module, stage):
        self.stop = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer, module):  # Lightning's own handler leaves within the epoch, with 0
        signal.signal(signal.SIGTERM, self.stop)

    def on_train_epoch_end(self, trainer, module):
        run.log(trainer.current_epoch + 1, loss=trainer.callback_metrics["loss"])
        run.save(trainer.current_epoch + 1)


class Fit:
    """All that Lightning restores: model, optimizers, schedulers, loops, callbacks."""

    path = Path("lightning.ckpt")

    def __init__(self, trainer):
        self.trainer = trainer

    def state_dict(self):
        self.trainer.save_checkpoint(self.path)
        return self.path.read_bytes()

    def load_state_dict(self, state):
        self.path.write_bytes(state)


def main():
    epochs, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    lightning.seed_everything(seed, verbose=False)
    inputs = torch.randn(128, 4)
    data = DataLoader(TensorDataset(inputs, inputs.sum(dim=1).sin()), batch_size=32, shuffle=True)
    model = Model()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[Resumable()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )

    start = run.resume(Fit(trainer), total=epochs, exactness="exact")
    trainer.fit(model, data, ckpt_path=Fit.path if start else None)


if __name__ == "__main__":
    main()
