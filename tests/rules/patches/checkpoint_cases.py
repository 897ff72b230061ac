"""What patches change in calls of activation checkpointing."""

from __future__ import annotations

from patch_case import case

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
        """
        -        x = checkpoint(layer, x, mask=mask, use_reentrant=False)
        +        x = layer(x, mask=mask)
        """,
    ),
    case(
        "a function without a name",
        "MM007",
        """
        import torch.utils.checkpoint as cp
        y = cp.checkpoint(lambda a: block(a) + a, x, use_reentrant=False, preserve_rng_state=True)  #@
        """,
        """
        -y = cp.checkpoint(lambda a: block(a) + a, x, use_reentrant=False, preserve_rng_state=True)
        +y = (lambda a: block(a) + a)(x)
        """,
    ),
    case(
        "a reentrant checkpoint, which may keep a layer from training",
        "MM007",
        """
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(layer, x)  #@
        """,
        "",
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
    case(
        "every second layer, whose index has a name already",
        "MM007",
        """
        from torch.utils.checkpoint import checkpoint
        for index, layer in enumerate(layers):
            x = checkpoint(layer, x, use_reentrant=False)  #@
        """,
        "",
        EVERY_SECOND,
    ),
    case(
        "every second layer, without a loop",
        "MM007",
        """
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(layer, x, use_reentrant=False)  #@
        """,
        "",
        EVERY_SECOND,
    ),
    case(
        "a model of a library, which calls checkpoint itself",
        "MM007",
        """
        model.gradient_checkpointing_enable()
        loss = model(**batch).loss  #@
        """,
        "",
    ),
    case(
        "a comment inside of the call, which would be lost",
        "MM007",
        """
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(layer, x,  # saves 2 GB
                       use_reentrant=False)  #@
        """,
        "",
    ),
    case(
        "what is recomputed is chosen",
        "MM007",
        """
        from torch.utils.checkpoint import checkpoint
        x = checkpoint(layer, x, use_reentrant=False, context_fn=policy)  #@
        """,
        "",
    ),
]
