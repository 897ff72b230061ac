"""Which hand-written attention patches replace with the fused operator."""

from __future__ import annotations

from patch_case import case

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
