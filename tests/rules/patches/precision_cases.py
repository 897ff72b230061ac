"""What patches change for faster arithmetic: autocast, TF32, the search of cuDNN, the memory layout."""

from __future__ import annotations

from patch_case import autocast, case, silent

from traceopt.result.edits import Call, Edit, SetAttribute

AUTOCAST = autocast()
TF32: list[Edit] = [
    Call("torch.set_float32_matmul_precision", '"high"'),
    SetAttribute("torch.backends.cudnn.allow_tf32", "True"),
]
FLUSH: list[Edit] = [Call("torch.set_flush_denormal", "True")]

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
        edits=AUTOCAST,
    ),
    case(
        "on the CPU",
        "TC001",
        "import torch\nfor x in loader:\n    loss = model(x).loss  #@\n    loss.backward()\n",
        """
        -    loss = model(x).loss
        +    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        +        loss = model(x).loss
        """,
        edits=autocast("cpu"),
    ),
    case(
        "on the CPU, with a NumPy array of the result",
        "TC001",
        "import torch\nfor x in loader:\n    loss = f(model(x).numpy())  #@\n    loss.backward()\n",
        "",
        edits=autocast("cpu"),
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
        edits=AUTOCAST,
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
        edits=AUTOCAST,
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
        edits=AUTOCAST,
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
        edits=AUTOCAST,
    ),
    case(
        "float16 needs a scaler",
        "TC001",
        "import torch\nfor x in loader:\n    loss = f(x)  #@\n    loss.backward()\n",
        edits=autocast(dtype="float16"),
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
        "TF32 for matmuls and convolutions",
        "TC002",
        "import torch\nmodel(x).backward()  #@\n",
        """
        +
        +torch.set_float32_matmul_precision("high")
        +torch.backends.cudnn.allow_tf32 = True
        """,
        edits=TF32,
    ),
    case(
        "TF32 is set for convolutions",
        "TC002",
        "import torch\ntorch.backends.cudnn.allow_tf32 = flag\nf(x).backward()  #@\n",
        edits=TF32,
    ),
    case(
        "subnormal numbers",
        "CP008",
        "import torch\nfrom torch import nn\n\nnet(x).backward()  #@\n",
        """
        +torch.set_flush_denormal(True)
        +
        """,
        edits=FLUSH,
    ),
    case(
        "subnormal numbers: the script sets it",
        "CP008",
        "import torch\ntorch.set_flush_denormal(options.flush)\nnet(x).backward()  #@\n",
        edits=FLUSH,
    ),
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
        "cuDNN's search again and again",
        "CV004",
        "import torch\ntorch.backends.cudnn.benchmark = True  # fast\nm(x).backward()  #@\n",
        ("True", "False"),
    ),
    case(
        "cuDNN's search by another name",
        "CV004",
        "import torch\nfrom torch.backends import cudnn\ncudnn.benchmark = True\nm(x).backward()  #@\n",
        ("True", "False"),
    ),
    case(
        "cuDNN's search by an option",
        "CV004",
        "import torch\ntorch.backends.cudnn.benchmark = options.fast\nm(x).backward()  #@\n",
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
PRECISION += silent(
    "TC001",
    {
        "a string over several lines must not move": "import torch\nfor x in loader:\n"
        '    loss = model(x, """a\n    b""")  #@\n    loss.backward()\n',
        "an f-string over several lines must not move": "import torch\nfor x in loader:\n"
        '    loss = model(x, f"""{a}\n    b""")  #@\n    loss.backward()\n',
        "something else in between": "import torch\nfor x in loader:\n"
        "    out = model(x)\n    save(x)\n    loss = f(out)  #@\n    loss.backward()\n",
        "a forward pass in a branch": """
        import torch
        for x in loader:
            if flip:
                out = model(x.flip(0))
            else:
                out = model(x)
            loss = f(out)  #@
            loss.backward()
        """,
        "a forward pass outside of the block of the loss": """
        import torch
        for x, y in loader:
            out = model(x)
            if train:
                loss = criterion(out, y)  #@
                loss.backward()
        """,
        "a forward pass before a branch of a function": "import torch\ndef f(x):\n"
        "    y = m(x)\n    if g:\n        loss = c(y)  #@\n        loss.backward()\n",
        "two backward passes": "import torch\nfor x in loader:\n"
        "    a = f(x)  #@\n    a.backward()\n    b = g(x)\n    b.backward()\n",
        "autocast is there": "import torch\nfor x in loader:\n"
        "    with torch.autocast('cuda', enabled=amp):\n        loss = f(x)  #@\n    loss.backward()\n",
        "two statements on a line": "import torch\nfor x in loader:\n    loss = f(x); loss.backward()  #@\n",
    },
    edits=AUTOCAST,
)
PRECISION += silent(
    "TC002",
    {
        "TF32 under another name, in a file of one line without an end": "import torch as t; "
        "loss = f(t.ones(1)); loss.backward()  #@",
        "TF32 is set": "import torch\ntorch.backends.cuda.matmul.allow_tf32 = flag\nf(x).backward()  #@\n",
        "a library sets nothing": "import torch\ndef forward(x):\n    return f(x)  #@\n",
        "torch comes later": "import os\nif os.name:\n    pass\nimport torch\nf(x).backward()  #@\n",
    },
)
