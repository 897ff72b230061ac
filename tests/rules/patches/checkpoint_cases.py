"""What patches change in calls of activation checkpointing."""

from __future__ import annotations

from patch_case import case, silent

from traceopt.result.edits import Edit, RemoveCall

EVERY_SECOND: list[Edit] = [RemoveCall("torch.utils.checkpoint.checkpoint", 2)]
CHECKPOINTS = [
    case(
        "layers in a loop",
        "MM007",
        """
        from torch.utils.checkpoint import checkpoint
        def forward(self, x, mask):
            for layer in self.layers:
                x = checkpoint(layer, x, mask=mask, use_reentrant=False)  #@
            return x
        """,
        ("checkpoint(layer, x, mask=mask, use_reentrant=False", "layer(x, mask=mask"),
    ),
    case(
        "a function without a name",
        "MM007",
        """
        import torch.utils.checkpoint as cp
        y = cp.checkpoint(lambda a: block(a) + a, x, use_reentrant=False, preserve_rng_state=True)  #@
        """,
        (
            "cp.checkpoint(lambda a: block(a) + a, x, use_reentrant=False, preserve_rng_state=True",
            "(lambda a: block(a) + a)(x",
        ),
    ),
    case(
        "every second layer of a loop",
        "MM007",
        """
        from torch.utils.checkpoint import checkpoint
        def forward(self, x):
            for layer in self.layers:
                x = x + checkpoint(layer, x, use_reentrant=False)  #@
            return x
        """,
        """
        -    for layer in self.layers:
        -        x = x + checkpoint(layer, x, use_reentrant=False)
        +    for index, layer in enumerate(self.layers):
        +        x = x + (layer(x) if index % 2 else checkpoint(layer, x, use_reentrant=False))
        """,
        EVERY_SECOND,
    ),
]
CHECKPOINTS += silent(
    "MM007",
    {
        "a reentrant checkpoint, which may keep a layer from training": """
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(layer, x)  #@
        """,
        "a model of a library, which calls checkpoint itself": """
        model.gradient_checkpointing_enable()
        loss = model(**batch).loss  #@
        """,
        "a comment inside of the call, which would be lost": """
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(layer, x,  # saves 2 GB
                       use_reentrant=False)  #@
        """,
        "what is recomputed is chosen": """
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(layer, x, use_reentrant=False, context_fn=policy)  #@
        """,
    },
)
CHECKPOINTS += silent(
    "MM007",
    {
        "every second layer, whose index has a name already": """
        from torch.utils.checkpoint import checkpoint
        for index, layer in enumerate(layers):
            x = checkpoint(layer, x, use_reentrant=False)  #@
        """,
        "every second layer, without a loop": """
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(layer, x, use_reentrant=False)  #@
        """,
    },
    edits=EVERY_SECOND,
)
