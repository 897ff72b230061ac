"""Sources and what a fix changes in them: a table of rule, file, and the lines that the diff takes and gives.

In a source, `#@` at the end of a line marks the place of the finding (the mark is taken out), two marks its first and
last line; `#@name` marks the first line of the function `name`, for traces without the lines of calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

HEAD = "import torch\nfrom torch.utils.data import DataLoader\n\n"
WORKERS_4 = "DataLoader(..., num_workers=4, persistent_workers=True)"
AUTOCAST = 'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = model(inputs, labels)'


@dataclass(frozen=True)
class Case:
    """`changes`: the lines of the diff that begin with - or +; empty where there must be no patch."""

    name: str
    code: str
    text: str
    changes: str
    example: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.name}"


def case(name: str, code: str, text: str, changes: str = "", example: str = "") -> Case:
    return Case(name, code, dedent(text).lstrip("\n"), dedent(changes).lstrip("\n"), example)


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
        "TrainingArguments(..., dataloader_num_workers=4, dataloader_persistent_workers=True)",
    ),
    case(
        "under another name",
        "TC001",
        """
        import accelerate
        from accelerate import Accelerator as Prepared
        this = Prepared()  #@
        """,
        """
        -this = Prepared()
        +this = Prepared(mixed_precision="bf16")
        """,
        'Accelerator(..., mixed_precision="bf16")',
    ),
    case(
        "a value from the command line",
        "TC001",
        "trainer = Trainer(precision=arguments.precision)  #@\n",
        "",
        'Trainer(..., precision="bf16-mixed")',
    ),
    case("arguments parsed elsewhere", "TC001", "arguments = parse()  #@\n", "", "TrainingArguments(..., bf16=True)"),
]

LOADERS = [
    case(
        "a new loader in each epoch",
        "DL006",
        """
        from torch.utils.data import DataLoader
        for epoch in range(9):
            loader = DataLoader(data, num_workers=2)  #@
            for batch in loader:
                step(batch)
        """,
    ),
    case(
        "a loader at the line that constructs it",
        "DL001",
        """
        from torch.utils.data import DataLoader
        class Data(LightningDataModule):
            def train_dataloader(self):
                return DataLoader(self.train, batch_size=8)  #@
            def val_dataloader(self):
                return DataLoader(self.val, batch_size=8)
        """,
        """
        -        return DataLoader(self.train, batch_size=8)
        +        return DataLoader(self.train, batch_size=8, num_workers=4, persistent_workers=True)
        """,
        WORKERS_4,
    ),
    case(
        "a call on one line",
        "DL001",
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(data, batch_size=8)
        for batch in loader:  #@
            step(batch)
        """,
        """
        -loader = DataLoader(data, batch_size=8)
        +loader = DataLoader(data, batch_size=8, num_workers=4, persistent_workers=True)
        """,
        WORKERS_4,
    ),
    case(
        "zero workers are replaced, and what is right stays",
        "DL001",
        """
        import torch.utils.data as tud
        loader = tud.DataLoader(data, 8, num_workers=0, persistent_workers=False, prefetch_factor=None)
        for step, batch in enumerate(loader):  #@
            train(batch)
        """,
        """
        -loader = tud.DataLoader(data, 8, num_workers=0, persistent_workers=False, prefetch_factor=None)
        +loader = tud.DataLoader(data, 8, num_workers=4, persistent_workers=True, prefetch_factor=4, pin_memory=True)
        """,
        "DataLoader(..., num_workers=4, persistent_workers=True, prefetch_factor=4, pin_memory=True)",
    ),
    case(
        "one argument a line, with a comma behind the last and comments",
        "DL001",
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(  # of the training set
            data,
            batch_size=8,  # fits, just so
            # more to come
        )
        for batch in loader:  #@
            train(batch)
        """,
        """
        +    num_workers=4,
        +    persistent_workers=True,
        """,
        WORKERS_4,
    ),
    case(
        "one argument a line, without that comma, with a comment",
        "DL001",
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(
            data,
            collate_fn=Collate(
                pad=(0, 1),
            )  # a nested call
        )
        for batch in loader:  #@
            train(batch)
        """,
        """
        -    )  # a nested call
        +    ),  # a nested call
        +    num_workers=4,
        +    persistent_workers=True,
        """,
        WORKERS_4,
    ),
    case(
        "arguments that hang below the parenthesis",
        "DL001",
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(data,
                            batch_size=8, shuffle=True)
        for batch in loader:  #@
            train(batch)
        """,
        """
        -                    batch_size=8, shuffle=True)
        +                    batch_size=8, shuffle=True, num_workers=4, persistent_workers=True)
        """,
        WORKERS_4,
    ),
    case(
        "a comma before the parenthesis on the same line",
        "DL001",
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(data, batch_size=8,)
        for batch in loader:  #@
            train(batch)
        """,
        """
        -loader = DataLoader(data, batch_size=8,)
        +loader = DataLoader(data, batch_size=8, num_workers=4, persistent_workers=True,)
        """,
        WORKERS_4,
    ),
    case(
        "tabs",
        "DL001",
        "from torch.utils.data import DataLoader\ndef main():\n\tloader = DataLoader(\n\t\tdata,\n\t)\n"
        "\tfor batch in loader:  #@\n\t\ttrain(batch)\n",
        """
        +\t\tnum_workers=4,
        +\t\tpersistent_workers=True,
        """,
        WORKERS_4,
    ),
    case(
        "letters of several bytes before the call on its line",
        "DL001",
        """
        from torch.utils.data import DataLoader
        größe = "ÄÖÜ 数据"; lader = DataLoader("數據", größe)  # Lädt
        for bündel in lader:  #@
            train(bündel)
        """,
        """
        -größe = "ÄÖÜ 数据"; lader = DataLoader("數據", größe)  # Lädt
        +größe = "ÄÖÜ 数据"; lader = DataLoader("數據", größe, num_workers=4, persistent_workers=True)  # Lädt
        """,
        WORKERS_4,
    ),
    case(
        "CRLF",
        "DL001",
        "from torch.utils.data import DataLoader\r\nloader = DataLoader(\r\n    data,\r\n)\r\n"
        "for batch in loader:  #@\r\n    train(batch)\r\n",
        "+    num_workers=4,\r\n+    persistent_workers=True,\r\n",
        WORKERS_4,
    ),
    case(
        "no newline at the end of the file",
        "DL001",
        "from torch.utils.data import DataLoader\nfor batch in DataLoader(data): train(batch)  #@",
        """
        -for batch in DataLoader(data): train(batch)
        +for batch in DataLoader(data, num_workers=4, persistent_workers=True): train(batch)
        """,
        WORKERS_4,
    ),
    case(
        "the branch without workers, for both make the loader",
        "DL001",
        """
        from torch.utils.data import DataLoader
        def main(fast):
            if fast:
                loader = DataLoader(data, num_workers=8)
            else:
                loader = DataLoader(data, num_workers=0)
            for batch in loader:  #@
                train(batch)
        """,
        """
        -        loader = DataLoader(data, num_workers=0)
        +        loader = DataLoader(data, num_workers=4, persistent_workers=True)
        """,
        WORKERS_4,
    ),
    case(
        "the loader that is passed to the function with the loop",
        "DL001",
        """
        from torch.utils.data import DataLoader
        from tqdm import tqdm

        def epoch(model, loader):
            for batch in tqdm(loader, desc="train"):  #@
                model(batch)

        def main():
            train_loader, test_loader = DataLoader(data), DataLoader(test)
            epoch(model, train_loader)
            evaluate(model, test_loader)
        """,
        """
        -    train_loader, test_loader = DataLoader(data), DataLoader(test)
        +    train_loader, test_loader = DataLoader(data, num_workers=4, persistent_workers=True), DataLoader(test)
        """,
        WORKERS_4,
    ),
    case(
        "a progress bar round the loader",
        "DL001",
        """
        import tqdm
        from torch.utils.data import DataLoader as Loader
        with tqdm.tqdm(Loader(data), unit="batch") as bar:
            for batch in bar:  #@
                train(batch)
        """,
        """
        -with tqdm.tqdm(Loader(data), unit="batch") as bar:
        +with tqdm.tqdm(Loader(data, num_workers=4, persistent_workers=True), unit="batch") as bar:
        """,
        WORKERS_4,
    ),
    case(
        "the loader that a function of the file returns, in an attribute",
        "DL001",
        """
        from torch.utils.data import DataLoader
        class Trainer:
            def loaders(self):
                test = DataLoader(testing)
                return DataLoader(training), test
            def __init__(self):
                self.loader, self.test = self.loaders()
            @torch.compile
            @other
            def fit(self):
                batches = iter(self.loader)
                for step in range(100):
                    batch = next(batches)  #@
        """,
        """
        -        return DataLoader(training), test
        +        return DataLoader(training, num_workers=4, persistent_workers=True), test
        """,
        WORKERS_4,
    ),
    case(
        "a trace that knows the function only, with a decorator",
        "DL001",
        """
        from torch.utils.data import DataLoader
        @click.command()  #@main
        def main():
            loader = DataLoader(data)
            for batch in loader:
                train(batch)
        """,
        """
        -    loader = DataLoader(data)
        +    loader = DataLoader(data, num_workers=4, persistent_workers=True)
        """,
        WORKERS_4,
    ),
    case(
        "more workers than there are",
        "DL001",
        """
        from torch.utils.data import DataLoader
        for batch in DataLoader(data, 8, True, None, None, num_workers=2):  #@
            train(batch)
        """,
        """
        -for batch in DataLoader(data, 8, True, None, None, num_workers=2):
        +for batch in DataLoader(data, 8, True, None, None, num_workers=4, persistent_workers=True):
        """,
        WORKERS_4,
    ),
    case(
        "workers enough, but more batches to wait ready",
        "DL001",
        """
        from torch.utils.data import DataLoader
        def train(loader, test):
            for batch in loader:  #@
                step(batch)
        train(DataLoader(data, num_workers=options.workers, prefetch_factor=2), DataLoader(test))
        """,
        """
        -train(DataLoader(data, num_workers=options.workers, prefetch_factor=2), DataLoader(test))
        +train(DataLoader(data, num_workers=options.workers, prefetch_factor=4, pin_memory=True), DataLoader(test))
        """,
        "DataLoader(..., prefetch_factor=4, pin_memory=True)",
    ),
    case(
        "pinned memory that only the run knows",
        "DL001",
        HEAD + "for batch in DataLoader(data, pin_memory=options.pin):  #@\n    train(batch)\n",
        example="DataLoader(..., num_workers=4, pin_memory=True)",
    ),
    case(
        "batches do not wait where there are no workers",
        "DL001",
        HEAD + "for batch in DataLoader(data):  #@\n    train(batch)\n",
        example="DataLoader(..., prefetch_factor=4)",
    ),
    case(
        "more workers than advised",
        "DL001",
        HEAD + "for batch in DataLoader(data, num_workers=6):  #@\n    train(batch)\n",
        example=WORKERS_4,
    ),
    case(
        "no number is advised",
        "DL001",
        HEAD + "for batch in DataLoader(data):  #@\n    train(batch)\n",
        example="DataLoader(..., num_workers=2 * current)",
    ),
    case(
        "no number is advised, only what goes with it",
        "DL001",
        HEAD + "for batch in DataLoader(data, num_workers=2):  #@\n    train(batch)\n",
        example="DataLoader(..., num_workers=2 * current, prefetch_factor=4)",
    ),
    case(
        "workers that only the run knows",
        "DL001",
        HEAD + "for batch in DataLoader(data, num_workers=options.workers):  #@\n    train(batch)\n",
        example=WORKERS_4,
    ),
    case(
        "a loader from outside, and the only one here",
        "DL001",
        """
        from torch.utils.data import DataLoader
        class Trainer:
            def loader(self, data):
                return self.prepare(DataLoader(data))
            def fit(self):
                for batch in self.batches:  #@
                    train(batch)
        """,
        """
        -        return self.prepare(DataLoader(data))
        +        return self.prepare(DataLoader(data, num_workers=4, persistent_workers=True))
        """,
        WORKERS_4,
    ),
    case(
        "a loader of another file beside one of this file",
        "DL001",
        HEAD + "from data import loader\ntest = DataLoader(data)\nfor batch in loader:  #@\n    train(batch)\n",
        example=WORKERS_4,
    ),
    case(
        "arguments that the source does not show",
        "DL001",
        HEAD + "for batch in DataLoader(data, **options):  #@\n    train(batch)\n",
        example=WORKERS_4,
    ),
    case(
        "two loaders in turns",
        "DL001",
        HEAD + "a, b = DataLoader(x), DataLoader(y)\nfor batch in zip(a, b):  #@\n    train(batch)\n",
        example=WORKERS_4,
    ),
    case(
        "a class of the same name",
        "DL001",
        "class DataLoader(Base):\n    pass\nfor batch in DataLoader(data):  #@\n    train(batch)\n",
        example=WORKERS_4,
    ),
    case(
        "data that each worker would read as a whole",
        "DL001",
        "from torch.utils.data import DataLoader, IterableDataset\n"
        "class Lines(IterableDataset):\n    pass\nfor batch in DataLoader(Lines()):  #@\n    train(batch)\n",
        example=WORKERS_4,
    ),
    case(
        "the line is no loop any more",
        "DL001",
        HEAD + "loader = DataLoader(data)\nprint(loader)  #@\nfor batch in loader:\n    train(batch)\n",
        example=WORKERS_4,
    ),
    case(
        "workers that are started again",
        "DL006",
        HEAD + "for batch in DataLoader(data, num_workers=2):  #@\n    train(batch)\n",
        """
        -for batch in DataLoader(data, num_workers=2):
        +for batch in DataLoader(data, num_workers=2, persistent_workers=True):
        """,
    ),
    case(
        "perhaps no workers, and then the argument is an error",
        "DL006",
        HEAD + "for batch in DataLoader(data, num_workers=options.workers):  #@\n    train(batch)\n",
        """
        -for batch in DataLoader(data, num_workers=options.workers):
        +for batch in DataLoader(data, num_workers=options.workers, persistent_workers=options.workers > 0):
        """,
    ),
    case("no workers", "DL006", HEAD + "for batch in DataLoader(data):  #@\n    train(batch)\n"),
    case(
        "both copies and the loader",
        "DL003",
        """
        from torch.utils.data import DataLoader
        loader = DataLoader(data, pin_memory=False)
        for images, labels in loader:
            images, labels = images.to(device), labels.cuda(non_blocking=False)  #@
        """,
        """
        -loader = DataLoader(data, pin_memory=False)
        +loader = DataLoader(data, pin_memory=True)
        -    images, labels = images.to(device), labels.cuda(non_blocking=False)
        +    images, labels = images.to(device, non_blocking=True), labels.cuda(non_blocking=True)
        """,
    ),
    case(
        "a batch of names, and copies that do not block already",
        "DL003",
        """
        from torch.utils.data import DataLoader
        for batch in DataLoader(data):
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}  #@
        """,
        """
        -for batch in DataLoader(data):
        +for batch in DataLoader(data, pin_memory=True):
        """,
    ),
    case(
        "a copy in a function of its own",
        "DL003",
        """
        from torch.utils.data import DataLoader
        def move(batch):
            return [tensor.cuda() for tensor in batch]  #@
        def train(loader, other):
            for number, batch in enumerate(loader):
                batch = move(batch)
        train(DataLoader(data), DataLoader(test))
        """,
        """
        -    return [tensor.cuda() for tensor in batch]
        +    return [tensor.cuda(non_blocking=True) for tensor in batch]
        -train(DataLoader(data), DataLoader(test))
        +train(DataLoader(data, pin_memory=True), DataLoader(test))
        """,
    ),
    case(
        "pinned by choice of the run: then not the copy alone",
        "DL003",
        """
        from torch.utils.data import DataLoader
        for batch in DataLoader(data, pin_memory=cuda):
            batch = batch.to(device)  #@
        """,
    ),
    case(
        "blocking by choice of the run",
        "DL003",
        """
        from torch.utils.data import DataLoader
        for batch in DataLoader(data):
            batch = batch.to(device, non_blocking=fast)  #@
        """,
    ),
    case(
        "no loader: data of its own",
        "DL003",
        """
        for step in range(10):
            batch = data[step].to(device)  #@
        """,
    ),
]

ARGUMENTS = [
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
        """
        -        return torch.optim.Adam(self.parameters())
        +        return torch.optim.Adam(self.parameters(), fused=True)
        """,
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
        """
        -    model.parameters(), lr=1e-3, foreach=False  # old
        +    model.parameters(), lr=1e-3, fused=True  # old
        """,
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
        """
        -train(Descent([p for p in model.parameters() if p.requires_grad]), GradScaler())
        +train(Descent([p for p in model.parameters() if p.requires_grad], fused=True), GradScaler())
        """,
    ),
    case(
        "an optimizer without a fused form",
        "OP001",
        "from torch import optim\nopt = optim.RMSprop(params)\nopt.step()  #@\n",
        """
        -opt = optim.RMSprop(params)
        +opt = optim.RMSprop(params, foreach=True)
        """,
    ),
    case(
        "foreach becomes fused",
        "OP002",
        "from torch import optim\nopt = optim.Adam(params, foreach=True, fused=None)\nopt.step()  #@\n",
    ),
    case(
        "foreach alone becomes fused",
        "OP002",
        "from torch import optim\nopt = optim.Adam(params, foreach=True)\nopt.step()  #@\n",
        """
        -opt = optim.Adam(params, foreach=True)
        +opt = optim.Adam(params, fused=True)
        """,
    ),
    case(
        "foreach has nothing to become",
        "OP002",
        "from torch import optim\nopt = optim.Rprop(params, foreach=True)\nopt.step()  #@\n",
    ),
    case("fused already", "OP001", "from torch import optim\nopt = optim.Adam(p, fused=True)\nopt.step()  #@\n"),
    case("an optimizer of one's own", "OP001", "from lib import Adam\nopt = Adam(p)\nopt.step()  #@\n"),
    case(
        "a generator alone needs parentheses",
        "OP001",
        "from torch import optim\nopt = optim.SGD(p for p in params)\nopt.step()  #@\n",
    ),
    case(
        "two optimizers of one name",
        "OP001",
        "from torch import optim\nfor opt in [optim.Adam(a), optim.Adam(b)]:\n    opt.step()  #@\n",
    ),
    case(
        "set_to_none=False",
        "OP003",
        "optimizer.zero_grad(set_to_none=False)  #@\n",
        """
        -optimizer.zero_grad(set_to_none=False)
        +optimizer.zero_grad(set_to_none=True)
        """,
    ),
    case(
        "by position, with a comment inside",
        "OP003",
        "model.zero_grad(  #@\n    False  # to add to\n)\n",
        """
        -    False  # to add to
        +    True  # to add to
        """,
    ),
    case(
        "an older default",
        "OP003",
        "optimizer.zero_grad()  #@\n",
        """
        -optimizer.zero_grad()
        +optimizer.zero_grad(set_to_none=True)
        """,
    ),
    case("None already", "OP003", "optimizer.zero_grad(set_to_none=True)  #@\n"),
    case(
        "buffers of DDP",
        "CM007",
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = DDP(Net().to(rank), device_ids=[rank])
        for batch in loader:
            loss = model(batch)  #@
        """,
        """
        -model = DDP(Net().to(rank), device_ids=[rank])
        +model = DDP(Net().to(rank), device_ids=[rank], broadcast_buffers=False)
        """,
    ),
    case(
        "buffers of DDP, switched off",
        "CM007",
        "from torch.nn.parallel import DistributedDataParallel\n"
        "model = DistributedDataParallel(net, broadcast_buffers=False)\nmodel(batch)  #@\n",
    ),
]

PRECISION = [
    case(
        "loss in one statement",
        "TC001",
        """
        import torch
        for x, y in loader:
            x = x.to(device)
            loss = model(x, y).loss  #@
            loss.backward()
        """,
        """
        -    loss = model(x, y).loss
        +    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        +        loss = model(x, y).loss
        """,
        AUTOCAST,
    ),
    case(
        "forward pass and loss over several lines",
        "TC001",
        """
        import torch as th
        def train():
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                logits = model(
                    x,  # images

                    mask=None,
                ).logits
                # the loss
                opt.zero_grad()
                loss = criterion(logits.view(-1, 10), y)  #@
                loss = loss / 4
                loss.backward()
        """,
        """
        -        logits = model(
        -            x,  # images
        +        with th.autocast(device_type="cuda", dtype=th.bfloat16):
        +            logits = model(
        +                x,  # images
        -            mask=None,
        -        ).logits
        -        # the loss
        -        opt.zero_grad()
        -        loss = criterion(logits.view(-1, 10), y)
        -        loss = loss / 4
        +                mask=None,
        +            ).logits
        +            # the loss
        +            opt.zero_grad()
        +            loss = criterion(logits.view(-1, 10), y)
        +            loss = loss / 4
        """,
        AUTOCAST,
    ),
    case(
        "tabs under autocast",
        "TC001",
        "import torch\nfor x in loader:\n\tloss = model(\n  x)  #@\n\tloss.backward()\n",
        """
        -\tloss = model(
        -  x)
        +\twith torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        +\t\tloss = model(
        +\t  x)
        """,
        AUTOCAST,
    ),
    case(
        "a string over several lines must not move",
        "TC001",
        'import torch\nfor x in loader:\n    loss = model(x, """a\n    b""")  #@\n    loss.backward()\n',
        example=AUTOCAST,
    ),
    case(
        "an f-string over several lines must not move",
        "TC001",
        'import torch\nfor x in loader:\n    loss = model(x, f"""{a}\n    b""")  #@\n    loss.backward()\n',
        example=AUTOCAST,
    ),
    case(
        "strings that lie side by side on several lines may",
        "TC001",
        'import torch\nfor x in loader:\n    loss = model(x, f"{a}"\n        "b")  #@\n    loss.backward()\n',
        """
        -    loss = model(x, f"{a}"
        -        "b")
        +    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        +        loss = model(x, f"{a}"
        +            "b")
        """,
        AUTOCAST,
    ),
    case(
        "something else in between",
        "TC001",
        "import torch\nfor x in loader:\n    out = model(x)\n    save(x)\n    loss = f(out)  #@\n    loss.backward()\n",
        example=AUTOCAST,
    ),
    case(
        "a forward pass in a branch",
        "TC001",
        """
        import torch
        for x in loader:
            if flip:
                out = model(x.flip(0))
            else:
                out = model(x)
            loss = f(out)  #@
            loss.backward()
        """,
        example=AUTOCAST,
    ),
    case(
        "a forward pass outside of the block of the loss",
        "TC001",
        """
        import torch
        for x, y in loader:
            out = model(x)
            if train:
                loss = criterion(out, y)  #@
                loss.backward()
        """,
        example=AUTOCAST,
    ),
    case(
        "a forward pass before a branch of a function",
        "TC001",
        "import torch\ndef f(x):\n    y = m(x)\n    if g:\n        loss = c(y)  #@\n        loss.backward()\n",
        example=AUTOCAST,
    ),
    case(
        "a state that goes from step to step",
        "TC001",
        """
        import torch
        for x, y in loader:
            out, state = model(x, state)
            loss = criterion(out, y)  #@
            loss.backward()
            state = state.detach()
        """,
        """
        -    out, state = model(x, state)
        -    loss = criterion(out, y)
        +    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        +        out, state = model(x, state)
        +        loss = criterion(out, y)
        """,
        AUTOCAST,
    ),
    case(
        "two backward passes",
        "TC001",
        "import torch\nfor x in loader:\n    a = f(x)  #@\n    a.backward()\n    b = g(x)\n    b.backward()\n",
        example=AUTOCAST,
    ),
    case(
        "autocast is there",
        "TC001",
        "import torch\nfor x in loader:\n    with torch.autocast('cuda', enabled=amp):\n        loss = f(x)  #@\n"
        "    loss.backward()\n",
        example=AUTOCAST,
    ),
    case(
        "float16 needs a scaler",
        "TC001",
        "import torch\nfor x in loader:\n    loss = f(x)  #@\n    loss.backward()\n",
        example=AUTOCAST.replace("bfloat16", "float16"),
    ),
    case(
        "two statements on a line",
        "TC001",
        "import torch\nfor x in loader:\n    loss = f(x); loss.backward()  #@\n",
        example=AUTOCAST,
    ),
    case(
        "TF32 below the imports",
        "TC002",
        '''
        """A script."""
        from __future__ import annotations

        import torch  # the library
        try:
            import wandb
        except ImportError:
            wandb = None
        from torch import nn

        loss = model(x)  #@
        loss.backward()
        ''',
        """
        +torch.set_float32_matmul_precision("high")
        +
        """,
    ),
    case(
        "TF32 under another name, in a file of one line without an end",
        "TC002",
        "import torch as t; loss = f(t.ones(1)); loss.backward()  #@",
    ),
    case(
        "TF32 is set",
        "TC002",
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = flag\nf(x).backward()  #@\n",
    ),
    case("a library sets nothing", "TC002", "import torch\ndef forward(x):\n    return f(x)  #@\n"),
    case("torch comes later", "TC002", "import os\nif os.name:\n    pass\nimport torch\nf(x).backward()  #@\n"),
    case(
        "cuDNN's search",
        "CV003",
        "import torch\nmodel(x).backward()  #@\n",
        """
        +
        +torch.backends.cudnn.benchmark = True
        """,
    ),
    case(
        "cuDNN's search is chosen", "CV003", "import torch\ntorch.backends.cudnn.benchmark = x\nm(x).backward()  #@\n"
    ),
    case(
        "a script by its guard",
        "CV003",
        "import torch\ndef main():\n    train(x)  #@\nif __name__ == '__main__':\n    main()\n",
        """
        +
        +torch.backends.cudnn.benchmark = True
        """,
    ),
    case(
        "channels_last for both",
        "CV001",
        """
        import torch
        def main():
            model = build().to(device)
            for images, labels in loader:
                images = images.to(device, non_blocking=True)
                loss = f(model(images), labels)  #@
                loss.backward()
        """,
        """
        -    model = build().to(device)
        +    model = build().to(device, memory_format=torch.channels_last)
        -        images = images.to(device, non_blocking=True)
        +        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        """,
    ),
    case(
        "the input is not moved here",
        "CV001",
        "import torch\nmodel = build().to(device)\nfor images in loader:\n    model(images).backward()  #@\n",
    ),
]

ATTENTION = [
    case(
        "one expression",
        "AT001",
        """
        import torch.nn.functional as F
        def attend(q, k, v):
            return F.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1) @ v  #@
        """,
        """
        -    return F.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1) @ v
        +    return F.scaled_dot_product_attention(q, k, v, scale=0.125)
        """,
    ),
    case(
        "statement by statement, with a mask",
        "AT001",
        """
        import math
        import torch
        class Attention(torch.nn.Module):
            def forward(self, x, mask):
                q, k, v = self.qkv(x).chunk(3, -1)
                scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.size(-1))
                scores = scores + mask[:, None]
                # weights of each token
                weights = torch.softmax(scores, -1)  #@
                out = torch.matmul(weights, self.split(v))
                return self.out(out)
        """,
        """
        -        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.size(-1))
        -        scores = scores + mask[:, None]
        -        weights = torch.softmax(scores, -1)
        -        out = torch.matmul(weights, self.split(v))
        +        out = torch.nn.functional.scaled_dot_product_attention(q, k, self.split(v), attn_mask=mask[:, None], \
scale=1 / math.sqrt(q.size(-1)))
        """,
    ),
    case(
        "a mask of what not to see",
        "AT001",
        """
        import torch
        from torch.nn import functional
        def attend(q, k, v):
            att = (q @ k.mT) * (1.0 / k.size(-1) ** 0.5)
            att = att.masked_fill(bias[:, :, :8] == 0, float("-inf"))
            return att.softmax(dim=-1) @ v  #@
        """,
        """
        -    att = (q @ k.mT) * (1.0 / k.size(-1) ** 0.5)
        -    att = att.masked_fill(bias[:, :, :8] == 0, float("-inf"))
        -    return att.softmax(dim=-1) @ v
        +    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[:, :, :8] != 0, \
scale=1.0 / k.size(-1) ** 0.5)
        """,
    ),
    case(
        "a mask of what to see, inverted",
        "AT001",
        """
        import torch
        from torch.nn import functional
        def attend(q, k, v):
            att = (q @ k.mT) * 0.125
            att = att.masked_fill(~visible[:8, :8], float("-inf"))
            return att.softmax(dim=-1) @ v  #@
        """,
        """
        -    att = (q @ k.mT) * 0.125
        -    att = att.masked_fill(~visible[:8, :8], float("-inf"))
        -    return att.softmax(dim=-1) @ v
        +    return functional.scaled_dot_product_attention(q, k, v, attn_mask=visible[:8, :8], scale=0.125)
        """,
    ),
    case(
        "no scale",
        "AT001",
        "import torch\ndef attend(q, k, v):\n    kt = k.transpose(-1, -2)\n    return (q @ kt).softmax(-1) @ v  #@\n",
        """
        -    kt = k.transpose(-1, -2)
        -    return (q @ kt).softmax(-1) @ v
        +    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
        """,
    ),
    case(
        "weights that are returned",
        "AT001",
        "import torch\ndef attend(q, k, v):\n    w = (q @ k.mT).softmax(-1)\n    return w @ v, w  #@\n",
    ),
    case(
        "dropout",
        "AT001",
        "import torch\ndef attend(self, q, k, v):\n    w = self.drop((q @ k.mT).softmax(-1))\n    return w @ v  #@\n",
    ),
    case(
        "a query that changes in between",
        "AT001",
        "import torch\ndef f(q, k, v):\n    s = q @ k.mT\n    q = g(q)\n    return s.softmax(-1) @ v  #@\n",
    ),
    case(
        "another softmax",
        "AT001",
        "import torch\ndef f(q, k, v):\n    return (q @ k.mT).softmax(-2) @ v  #@\n",
    ),
    case(
        "scaled after the mask",
        "AT001",
        "import torch\ndef f(q, k, v):\n    return ((q @ k.mT + m) * 2).softmax(-1) @ v  #@\n",
    ),
    case(
        "no transposed key",
        "AT001",
        "import torch\ndef f(q, k, v):\n    return (q @ k).softmax(-1) @ v  #@\n",
    ),
]

LOOPS = [
    case(
        "a print with .item()",
        "HS001",
        """
        for step, batch in enumerate(loader):
            optimizer.step()
            print(f"step {step} loss {loss.item():.3f}")  #@
        """,
        """
        -    print(f"step {step} loss {loss.item():.3f}")
        +    if step % 50 == 0:
        +        print(f"step {step} loss {loss.item():.3f}")
        """,
    ),
    case(
        "a value that is read for the log below",
        "HS001",
        """
        from tqdm import tqdm
        def train():
            for i, batch in tqdm(enumerate(loader, 1), total=9):
                trainer.step(batch)
                value = loss.detach().item()  #@
                # to the board
                writer.add_scalar(
                    "loss", value, i,
                )
                logger.info("loss %.3f", value)
        """,
        """
        -        value = loss.detach().item()
        -        # to the board
        -        writer.add_scalar(
        -            "loss", value, i,
        -        )
        -        logger.info("loss %.3f", value)
        +        if i % 50 == 0:
        +            value = loss.detach().item()
        +            # to the board
        +            writer.add_scalar(
        +                "loss", value, i,
        +            )
        +            logger.info("loss %.3f", value)
        """,
    ),
    case(
        "a step in a function of the file, on rank 0",
        "LG001",
        """
        def train_step(batch):
            loss.backward()
            optimizer.step()
        for step in range(100):
            train_step(next(batches))
            if rank == 0:
                print(step)  #@
        """,
        """
        -        print(step)
        +        if step % 50 == 0:
        +            print(step)
        """,
    ),
    case(
        "a progress bar",
        "LG002",
        "for i, x in enumerate(bar):\n  opt.step()\n  bar.set_postfix(loss=loss.item(), lr=s.get_last_lr()[0])  #@\n",
        """
        -  bar.set_postfix(loss=loss.item(), lr=s.get_last_lr()[0])
        +  if i % 50 == 0:
        +    bar.set_postfix(loss=loss.item(), lr=s.get_last_lr()[0])
        """,
    ),
    case("a sum that goes on", "HS001", "for i, x in enumerate(y):\n    o.step()\n    total += loss.item()  #@\n"),
    case(
        "a value that is used afterwards",
        "HS001",
        "for i, x in enumerate(y):\n    o.step()\n    v = loss.item()  #@\n    print(v)\n    best = min(best, v)\n",
    ),
    case(
        "a value that is used after the loop",
        "HS001",
        "for i, x in enumerate(y):\n    o.step()\n    v = loss.item()  #@\n    print(v)\nprint(v)\n",
    ),
    case(
        "a value read between two calls, of which one logs",
        "HS001",
        "for i, x in enumerate(y):\n    o.step()  #@\n    print(float(loss))\n    scheduler.step()  #@\n",
        """
        -    print(float(loss))
        +    if i % 50 == 0:
        +        print(float(loss))
        """,
    ),
    case(
        "two that log between the same calls",
        "LG002",
        "for i, x in enumerate(y):\n    o.step()  #@\n    print(a)\n    print(b)\n    scheduler.step()  #@\n",
    ),
    case("no index", "HS001", "for x in y:\n    o.step()\n    print(loss.item())  #@\n"),
    case("the index is the pair", "HS001", "for x in enumerate(y):\n    o.step()\n    print(loss.item())  #@\n"),
    case("no training loop", "HS001", "for i, x in enumerate(model.blocks):\n    print(x.item())  #@\n"),
    case(
        "an interval already",
        "HS001",
        "for i, x in enumerate(y):\n    o.step()\n    if i % 10 == 0:\n        print(loss.item())  #@\n",
    ),
    case(
        "the index is changed",
        "HS001",
        "for i, x in enumerate(y):\n    i += 1\n    o.step()\n    print(loss.item())  #@\n",
    ),
    case("the print does more", "HS001", "for i, x in enumerate(y):\n    o.step()\n    print(queue.pop())  #@\n"),
    case("a result file", "HS001", "for i, x in enumerate(y):\n    o.step()\n    f.write(str(loss.item()))  #@\n"),
    case("an index by the name of nothing", "HS001", "for _ in range(9):\n    o.step()\n    print(x.item())  #@\n"),
    case("another call", "HS001", "for i, x in enumerate(y):\n    o.step()\n    meter.update(loss.item())  #@\n"),
    case(
        "the log of another function",
        "LG001",
        "def log(step):\n    print(step)  #@\nfor i, x in enumerate(y):\n    o.step()\n    log(i)\n",
    ),
    case(
        "a synchronize",
        "HS003",
        "import torch\nfor x in y:\n    torch.cuda.synchronize()  # to time  #@\n    t = clock()\n",
        "-    torch.cuda.synchronize()  # to time\n",
    ),
    case(
        "a synchronize with its if",
        "HS003",
        """
        import torch
        for x in y:
            if torch.cuda.is_available():
                # wait
                torch.cuda.synchronize(device)  #@
            t = clock()
        """,
        """
        -    if torch.cuda.is_available():
        -        # wait
        -        torch.cuda.synchronize(device)
        """,
    ),
    case(
        "a synchronize on the line of its if",
        "HS003",
        "import torch\nfor x in y:\n    t = clock()\n    if cuda: torch.cuda.synchronize()  #@\n",
        "-    if cuda: torch.cuda.synchronize()\n",
    ),
    case(
        "all that an else holds",
        "HS003",
        "import torch\nif a:\n    b()\nelse:\n    torch.cuda.synchronize()  #@\nc()\n",
    ),
    case(
        "beside another statement",
        "HS003",
        "import torch\nfor x in y:\n    t = clock(); torch.cuda.synchronize()  #@\n    f()\n",
    ),
    case("of a stream", "HS003", "for x in y:\n    stream.synchronize()  #@\n    f()\n"),
    case(
        "a collection in each step",
        "PY001",
        "import gc\nfor step, x in enumerate(y):\n    opt.step()\n    gc.collect()  #@",
        """
        -    gc.collect()
        +    if step % 500 == 0:
        +        gc.collect()
        """,
    ),
    case("the collector's own", "PY001", "import gc\nfor i, x in enumerate(y):\n    opt.step()  #@\n"),
]

CASES = [*FRAMEWORKS, *LOADERS, *ARGUMENTS, *PRECISION, *ATTENTION, *LOOPS]
