"""What patches change in the arguments of optimizers, of DistributedDataParallel and of training frameworks."""

from __future__ import annotations

from patch_case import case, silent

from traceopt.result.edits import Edit, SetArguments

SEARCHING: list[Edit] = [SetArguments("DistributedDataParallel", {"find_unused_parameters": "False"})]

FRAMEWORKS = [
    case(
        "the Trainer's arguments",
        "DL001",
        """
        from transformers import TrainingArguments
        arguments = TrainingArguments(  #@
            output_dir="out",
            dataloader_num_workers=0,
        )
        """,
        """
        -    dataloader_num_workers=0,
        +    dataloader_num_workers=4,
        +    dataloader_persistent_workers=True,
        """,
        in_framework=SetArguments(
            "TrainingArguments", {"dataloader_num_workers": "4", "dataloader_persistent_workers": "True"}
        ),
    ),
    case(
        "under another name",
        "TC001",
        """
        import accelerate
        from accelerate import Accelerator as Prepared
        this = Prepared()  #@
        """,
        ("Prepared(", 'Prepared(mixed_precision="bf16"'),
        in_framework=SetArguments("Accelerator", {"mixed_precision": '"bf16"'}),
    ),
    case(
        "a value from the command line",
        "TC001",
        "trainer = Trainer(precision=arguments.precision)  #@\n",
        "",
        in_framework=SetArguments("Trainer", {"precision": '"bf16-mixed"'}),
    ),
    case(
        "arguments parsed elsewhere",
        "TC001",
        "arguments = parse()  #@\n",
        "",
        in_framework=SetArguments("TrainingArguments", {"bf16": "True"}),
    ),
]

ARGUMENTS = [
    case(
        "the embedding that a line calls",
        "EF020",
        """
        from torch import nn
        class Model(nn.Module):
            def __init__(self):
                self.words = nn.Embedding(100_000, 64)
                self.places = nn.Embedding(512, 64)
            def forward(self, ids):
                return self.head(self.words(ids).mean(1))  #@
        """,
        ("100_000, 64", "100_000, 64, sparse=True"),
    ),
    case(
        "each optimizer of a GAN",
        "OP001",
        """
        from torch import optim
        def main():  #@main
            for_g = optim.Adam(g.parameters(), lr=1e-4)
            for_d = optim.Adam(d.parameters(), lr=1e-4)
            for batch in loader:
                for_d.step()
                for_g.step()
        """,
        """
        -    for_g = optim.Adam(g.parameters(), lr=1e-4)
        -    for_d = optim.Adam(d.parameters(), lr=1e-4)
        +    for_g = optim.Adam(g.parameters(), lr=1e-4, fused=True)
        +    for_d = optim.Adam(d.parameters(), lr=1e-4, fused=True)
        """,
    ),
    case(
        "an optimizer at the line that constructs it",
        "OP001",
        """
        import torch
        class Module(LightningModule):
            def configure_optimizers(self):
                other = torch.optim.Adam(self.other.parameters())
                return torch.optim.Adam(self.parameters())  #@
        """,
        ("self.parameters()", "self.parameters(), fused=True"),
    ),
    case(
        "foreach=False becomes fused=True",
        "OP001",
        """
        import torch
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-3, foreach=False  # old
        )
        for batch in loader:
            optimizer.step()  #@
        """,
        ("foreach=False", "fused=True"),
    ),
    case(
        "the optimizer that a scaler steps",
        "OP001",
        """
        from torch.optim import SGD as Descent
        def train(optimizer, scaler):
            scaler.step(optimizer)  #@
        train(Descent([p for p in model.parameters() if p.requires_grad]), GradScaler())
        """,
        ("p.requires_grad]", "p.requires_grad], fused=True"),
    ),
    case(
        "an optimizer without a fused form",
        "OP001",
        "from torch import optim\nopt = optim.RMSprop(params)\nopt.step()  #@\n",
        ("params", "params, foreach=True"),
    ),
    case(
        "foreach alone becomes fused",
        "OP001",
        "from torch import optim\nopt = optim.Adam(params, foreach=True)\nopt.step()  #@\n",
        ("foreach", "fused"),
    ),
    case(
        "set_to_none=False",
        "OP003",
        "optimizer.zero_grad(set_to_none=False)  #@\n",
        ("False", "True"),
    ),
    case(
        "by position, with a comment inside",
        "OP003",
        "model.zero_grad(  #@\n    False  # to add to\n)\n",
        ("False", "True"),
    ),
    case(
        "an older default",
        "OP003",
        "optimizer.zero_grad()  #@\n",
        ("optimizer.zero_grad(", "optimizer.zero_grad(set_to_none=True"),
    ),
    case("None already", "OP003", "optimizer.zero_grad(set_to_none=True)  #@\n"),
    case(
        "DDP that looks for unused parameters",
        "CM010",
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = DDP(net, device_ids=[rank], find_unused_parameters=True)  #@
        """,
        ("True", "False"),
        edits=SEARCHING,
    ),
    case(
        "DDP that looks for unused parameters if the script is told so",
        "CM010",
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = DDP(net, find_unused_parameters=options.unused)  #@
        """,
        edits=SEARCHING,
    ),
    case(
        "buffers of DDP",
        "CM007",
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = DDP(Net().to(rank), device_ids=[rank])
        for batch in loader:
            loss = model(batch)  #@
        """,
        ("rank]", "rank], broadcast_buffers=False"),
    ),
    case(
        "buffers of DDP, switched off",
        "CM007",
        "from torch.nn.parallel import DistributedDataParallel\n"
        "model = DistributedDataParallel(net, broadcast_buffers=False)\nmodel(batch)  #@\n",
    ),
]
ARGUMENTS += silent(
    "EF020",
    {
        "an embedding that is scaled by frequency has no sparse gradient": """
        from torch import nn
        words = nn.Embedding(100_000, 64, scale_grad_by_freq=True)
        vectors = words(ids)  #@
        """,
        "two embeddings on one line": """
        from torch import nn
        users, items = nn.Embedding(100_000, 64), nn.Embedding(500_000, 64)
        scores = users(u) * items(i)  #@
        """,
    },
)
ARGUMENTS += silent(
    "OP001",
    {
        "foreach becomes fused": "from torch import optim\n"
        "opt = optim.Adam(params, foreach=True, fused=None)\nopt.step()  #@\n",
        "foreach has nothing to become": "from torch import optim\n"
        "opt = optim.Rprop(params, foreach=True)\nopt.step()  #@\n",
        "fused already": "from torch import optim\nopt = optim.Adam(p, fused=True)\nopt.step()  #@\n",
        "an optimizer of one's own": "from lib import Adam\nopt = Adam(p)\nopt.step()  #@\n",
        "a generator alone needs parentheses": "from torch import optim\n"
        "opt = optim.SGD(p for p in params)\nopt.step()  #@\n",
        "two optimizers of one name": "from torch import optim\n"
        "for opt in [optim.Adam(a), optim.Adam(b)]:\n    opt.step()  #@\n",
    },
)
