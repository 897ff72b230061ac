"""What patches change in the construction of data loaders."""

from __future__ import annotations

from patch_case import case, loader, silent

HEAD = "import torch\nfrom torch.utils.data import DataLoader\n\n"
WORKERS_4 = loader(num_workers=4, persistent_workers=True)
KEPT = loader(persistent_workers=True)
INLINE = loader(num_workers=0)
AT_ONCE = loader(sampler="BatchSampler(RandomSampler(dataset), 64, drop_last=False)", batch_size=None)
BATCHES = "sampler=torch.utils.data.BatchSampler(torch.utils.data."

LOADERS = [
    case(
        "each client has a new loader, somewhere else",
        "DL006",
        """
        from torch.utils.data import DataLoader
        class Client:
            def __init__(self, data):
                self.loader = DataLoader(data, num_workers=2)  #@
        """,
    ),
    case(
        "short epochs without workers",
        "DL006",
        """
        from torch.utils.data import DataLoader
        class Client:
            def __init__(self, data, options):
                self.loader = DataLoader(data, batch_size=8, num_workers=options.workers)  #@
        """,
        ("options.workers", "0"),
        edits=INLINE,
    ),
    case(
        "an argument that needs workers",
        "DL006",
        HEAD + "for batch in DataLoader(data, num_workers=2, timeout=4):  #@\n    train(batch)\n",
        edits=INLINE,
    ),
    case(
        "arguments that mean nothing without workers",
        "DL009",
        HEAD + "loader = DataLoader(data, num_workers=2, persistent_workers=True, prefetch_factor=4)  #@\n",
        ("2, persistent_workers=True, prefetch_factor=4", "0, persistent_workers=False, prefetch_factor=None"),
        edits=INLINE,
    ),
    case(
        "batches taken at once, in another order in each epoch",
        "DL008",
        HEAD + "loader = DataLoader(data, 64, shuffle=True, pin_memory=True)  #@\n",
        (
            "64, shuffle=True",
            f"{BATCHES}RandomSampler(data), 64, drop_last=False), batch_size=None",
        ),
        edits=AT_ONCE,
    ),
    case(
        "batches taken at once, in order",
        "DL008",
        HEAD + "loader = DataLoader(self.data, batch_size=size, drop_last=True)  #@\n",
        (
            "batch_size=size, drop_last=True",
            f"{BATCHES}SequentialSampler(self.data), size, drop_last=True), batch_size=None",
        ),
        edits=AT_ONCE,
    ),
    *(
        case(
            f"batches that a person has to think about: {why}",
            "DL008",
            f"{HEAD}loader = DataLoader({arguments})  #@\n{more}",
            edits=AT_ONCE,
        )
        for why, arguments, more in (
            ("a sampler", "data, 64, sampler=chosen", ""),
            ("another way to join items", "data, 64, collate_fn=joined", ""),
            ("the order is a variable", "data, 64, shuffle=training", ""),
            ("a data set without a name", "TensorDataset(x, y), 64", ""),
            ("the size is read", "data, 64", "total = loader.batch_size\n"),
            ("hidden arguments", "data, 64, **options", ""),
        )
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
        ("self.train, batch_size=8", "self.train, batch_size=8, num_workers=4, persistent_workers=True"),
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
        ("batch_size=8", "batch_size=8, num_workers=4, persistent_workers=True"),
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
        (
            "0, persistent_workers=False, prefetch_factor=None",
            "4, persistent_workers=True, prefetch_factor=4, pin_memory=True",
        ),
        loader(num_workers=4, persistent_workers=True, prefetch_factor=4, pin_memory=True),
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
        ("True", "True, num_workers=4, persistent_workers=True"),
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
        ("=8,", "=8, num_workers=4, persistent_workers=True,"),
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
        (", größe", ", größe, num_workers=4, persistent_workers=True"),
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
        ("(data", "(data, num_workers=4, persistent_workers=True"),
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
        ("num_workers=0", "num_workers=4, persistent_workers=True"),
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
        ("(data", "(data, num_workers=4, persistent_workers=True"),
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
        ("(data", "(data, num_workers=4, persistent_workers=True"),
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
        ("training", "training, num_workers=4, persistent_workers=True"),
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
        ("(data", "(data, num_workers=4, persistent_workers=True"),
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
        ("num_workers=2", "num_workers=4, persistent_workers=True"),
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
        ("prefetch_factor=2", "prefetch_factor=4, pin_memory=True"),
        loader(prefetch_factor=4, pin_memory=True),
    ),
    case(
        "pinned memory that only the run knows",
        "DL001",
        HEAD + "for batch in DataLoader(data, pin_memory=options.pin):  #@\n    train(batch)\n",
        edits=loader(num_workers=4, pin_memory=True),
    ),
    case(
        "batches do not wait where there are no workers",
        "DL001",
        HEAD + "for batch in DataLoader(data):  #@\n    train(batch)\n",
        edits=loader(prefetch_factor=4),
    ),
    case(
        "no number is advised",
        "DL001",
        HEAD + "for batch in DataLoader(data):  #@\n    train(batch)\n",
        edits=loader(num_workers="2 * current"),
    ),
    case(
        "no number is advised, only what goes with it",
        "DL001",
        HEAD + "for batch in DataLoader(data, num_workers=2):  #@\n    train(batch)\n",
        edits=loader(num_workers="2 * current", prefetch_factor=4),
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
        ("(data", "(data, num_workers=4, persistent_workers=True"),
        WORKERS_4,
    ),
    case(
        "workers that are started again",
        "DL006",
        HEAD + "for batch in DataLoader(data, num_workers=2):  #@\n    train(batch)\n",
        ("num_workers=2", "num_workers=2, persistent_workers=True"),
        edits=KEPT,
    ),
    case(
        "perhaps no workers, and then the argument is an error",
        "DL006",
        HEAD + "for batch in DataLoader(data, num_workers=options.workers):  #@\n    train(batch)\n",
        ("options.workers", "options.workers, persistent_workers=options.workers > 0"),
        edits=KEPT,
    ),
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
        ("(data", "(data, pin_memory=True"),
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
]
LOADERS += silent(
    "DL006",
    {
        "a new loader in each epoch": """
        from torch.utils.data import DataLoader
        for epoch in range(9):
            loader = DataLoader(data, num_workers=2)  #@
            for batch in loader:
                step(batch)
        """,
        "no workers": HEAD + "for batch in DataLoader(data):  #@\n    train(batch)\n",
    },
    edits=KEPT,
)
LOADERS += silent(
    "DL001",
    {
        "more workers than advised": HEAD + "for batch in DataLoader(data, num_workers=6):  #@\n    train(batch)\n",
        "workers that only the run knows": HEAD
        + "for batch in DataLoader(data, num_workers=options.workers):  #@\n    train(batch)\n",
        "a loader of another file beside one of this file": HEAD
        + "from data import loader\ntest = DataLoader(data)\nfor batch in loader:  #@\n    train(batch)\n",
        "arguments that the source does not show": HEAD
        + "for batch in DataLoader(data, **options):  #@\n    train(batch)\n",
        "two loaders in turns": HEAD
        + "a, b = DataLoader(x), DataLoader(y)\nfor batch in zip(a, b):  #@\n    train(batch)\n",
        "a class of the same name": "class DataLoader(Base):\n    pass\n"
        "for batch in DataLoader(data):  #@\n    train(batch)\n",
        "data that each worker would read as a whole": "from torch.utils.data import DataLoader, IterableDataset\n"
        "class Lines(IterableDataset):\n    pass\nfor batch in DataLoader(Lines()):  #@\n    train(batch)\n",
        "the line is no loop any more": HEAD
        + "loader = DataLoader(data)\nprint(loader)  #@\nfor batch in loader:\n    train(batch)\n",
    },
    edits=WORKERS_4,
)
LOADERS += silent(
    "DL003",
    {
        "pinned by choice of the run: then not the copy alone": """
        from torch.utils.data import DataLoader
        for batch in DataLoader(data, pin_memory=cuda):
            batch = batch.to(device)  #@
        """,
        "blocking by choice of the run": """
        from torch.utils.data import DataLoader
        for batch in DataLoader(data):
            batch = batch.to(device, non_blocking=fast)  #@
        """,
        "no loader: data of its own": """
        for step in range(10):
            batch = data[step].to(device)  #@
        """,
    },
)
