"""Which hand-written attention patches replace with the fused operator."""

from __future__ import annotations

from patch_case import case, silent

ATTENTION = [
    case(
        "one expression",
        "AT001",
        """
        import torch.nn.functional as F
        def attend(q, k, v):
            return F.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1) @ v  #@
        """,
        (
            "F.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1) @ v",
            "F.scaled_dot_product_attention(q, k, v, scale=0.125)",
        ),
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
        "a mask of the later tokens, and the softmax in FP32",
        "AT001",
        """
        import torch
        def attend(query, key, value):
            scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            weights = torch.softmax(scores.masked_fill(later, -torch.inf).float(), dim=-1, dtype=torch.float32)
            return weights.to(value.dtype) @ value  #@
        """,
        """
        -    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        -    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        -    weights = torch.softmax(scores.masked_fill(later, -torch.inf).float(), dim=-1, dtype=torch.float32)
        -    return weights.to(value.dtype) @ value
        +    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, \
scale=query.shape[-1] ** -0.5)
        """,
    ),
    case(
        "a square mask of the later tokens, made before",
        "AT001",
        """
        import torch
        def attend(q, k, v):
            mask = torch.triu(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool), diagonal=1)
            return (q @ k.mT).masked_fill(mask, -torch.inf).softmax(-1).type_as(q) @ v  #@
        """,
        """
        -    mask = torch.triu(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool), diagonal=1)
        -    return (q @ k.mT).masked_fill(mask, -torch.inf).softmax(-1).type_as(q) @ v
        +    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
        """,
    ),
    case(
        "a mask of the later tokens that is used again",
        "AT001",
        """
        import torch
        def attend(q, k, v):
            mask = torch.ones(8, 8, dtype=torch.bool).triu(1)
            out = (q @ k.mT).masked_fill(mask, -torch.inf).softmax(-1) @ v  #@
            return out + 0 * mask.sum()
        """,
        (
            "(q @ k.mT).masked_fill(mask, -torch.inf).softmax(-1) @ v",
            "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=~mask, scale=1.0)",
        ),
    ),
    case(
        "a mask that shows one later token",
        "AT001",
        """
        import torch
        def attend(q, k, v):
            mask = torch.ones(8, 8, dtype=torch.bool).triu(2)
            return (q @ k.mT).masked_fill(mask, -torch.inf).softmax(-1) @ v  #@
        """,
        (
            "(q @ k.mT).masked_fill(mask, -torch.inf).softmax(-1) @ v",
            "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=~mask, scale=1.0)",
        ),
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
]
ATTENTION += silent(
    "AT001",
    {
        "operands of different types": "import torch\ndef f(q, k, v):\n    q = q.float()\n    s = q @ k.float().mT\n"
        "    return s.softmax(-1).to(v.dtype) @ v  #@\n",
        "to another device": "import torch\ndef f(q, k, v):\n    return (q @ k.mT).softmax(-1).to(device) @ v  #@\n",
        "a softmax in FP32 that stays FP32": "import torch\ndef f(q, k, v):\n"
        "    return torch.softmax(q @ k.mT, -1, dtype=torch.float32) @ v  #@\n",
        "weights that are returned": "import torch\ndef attend(q, k, v):\n"
        "    w = (q @ k.mT).softmax(-1)\n    return w @ v, w  #@\n",
        "dropout": "import torch\ndef attend(self, q, k, v):\n"
        "    w = self.drop((q @ k.mT).softmax(-1))\n    return w @ v  #@\n",
        "a query that changes in between": "import torch\ndef f(q, k, v):\n"
        "    s = q @ k.mT\n    q = g(q)\n    return s.softmax(-1) @ v  #@\n",
        "another softmax": "import torch\ndef f(q, k, v):\n    return (q @ k.mT).softmax(-2) @ v  #@\n",
        "scaled after the mask": "import torch\ndef f(q, k, v):\n    return ((q @ k.mT + m) * 2).softmax(-1) @ v  #@\n",
        "no transposed key": "import torch\ndef f(q, k, v):\n    return (q @ k).softmax(-1) @ v  #@\n",
    },
)
