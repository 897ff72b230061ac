"""What patches change in the statements of the training loop."""

from __future__ import annotations

from patch_case import case, silent

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
    case(
        "a function that only logs",
        "LG001",
        """
        def log_gradients(model, step):
            \"\"\"For a look at them.\"\"\"
            if rank != 0:
                return
            total = 0.0
            for number, (name, parameter) in enumerate(model.named_parameters()):
                norm = parameter.grad.norm()
                total += norm ** 2
                logger.info("%s %s", name, norm)  #@
            print(step, total)
        for i, x in enumerate(y):
            o.step()
            if verbose or i % 50 == 0:
                log_gradients(net, i)
        """,
        """
        -        log_gradients(net, i)
        +        if i % 50 == 0:
        +            log_gradients(net, i)
        """,
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
LOOPS += silent(
    "HS001",
    {
        "a sum that goes on": "for i, x in enumerate(y):\n    o.step()\n    total += loss.item()  #@\n",
        "a value that is used afterwards": "for i, x in enumerate(y):\n    o.step()\n"
        "    v = loss.item()  #@\n    print(v)\n    best = min(best, v)\n",
        "a value that is used after the loop": "for i, x in enumerate(y):\n"
        "    o.step()\n    v = loss.item()  #@\n    print(v)\nprint(v)\n",
        "no index": "for x in y:\n    o.step()\n    print(loss.item())  #@\n",
        "the index is the pair": "for x in enumerate(y):\n    o.step()\n    print(loss.item())  #@\n",
        "no training loop": "for i, x in enumerate(model.blocks):\n    print(x.item())  #@\n",
        "an interval already": "for i, x in enumerate(y):\n    o.step()\n"
        "    if i % 10 == 0:\n        print(loss.item())  #@\n",
        "the index is changed": "for i, x in enumerate(y):\n    i += 1\n    o.step()\n    print(loss.item())  #@\n",
        "the print does more": "for i, x in enumerate(y):\n    o.step()\n    print(queue.pop())  #@\n",
        "a result file": "for i, x in enumerate(y):\n    o.step()\n    f.write(str(loss.item()))  #@\n",
        "an index by the name of nothing": "for _ in range(9):\n    o.step()\n    print(x.item())  #@\n",
        "another call": "for i, x in enumerate(y):\n    o.step()\n    meter.update(loss.item())  #@\n",
    },
)
LOOPS += silent(
    "LG001",
    {
        "a function that also changes something": "def f(m):\n    print(m.a)  #@\n"
        "    m.a = 0\nfor i, x in enumerate(y):\n    o.step()\n    f(m)\n",
        "a function whose value is used": "def f(a):\n    print(a)  #@\n"
        "for i, x in enumerate(y):\n    o.step()\n    b = f(i)\n",
        "a function that is also used elsewhere": "def f(a):\n    print(a)  #@\n"
        "for i, x in enumerate(y):\n    o.step()\n    f(i)\nhooks.append(f)\n",
        "a function called at an interval": "def f(a):\n    print(a)  #@\n"
        "for i, x in enumerate(y):\n    o.step()\n    if a and i % 9 < 1:\n        f(i)\n",
    },
)
LOOPS += silent(
    "HS003",
    {
        "all that an else holds": "import torch\nif a:\n    b()\nelse:\n    torch.cuda.synchronize()  #@\nc()\n",
        "beside another statement": "import torch\nfor x in y:\n"
        "    t = clock(); torch.cuda.synchronize()  #@\n    f()\n",
        "of a stream": "for x in y:\n    stream.synchronize()  #@\n    f()\n",
    },
)
