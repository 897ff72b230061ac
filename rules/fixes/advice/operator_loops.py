"""What to do about a loop that calls many small operators on a CPU."""

from __future__ import annotations

from traceopt.result.edits import Compile
from traceopt.result.finding import Fix

EMBEDDINGS = Fix(
    "Join the tables and look up all features at once, let torch.compile fuse the operators, or raise the batch size.",
    "table = nn.Embedding(sum(sizes), width)             # instead of one for each feature\n"
    "vectors = table(values + first_row).flatten(1)      # first_row: where each feature begins",
)
UPDATES = Fix(
    "If the loop runs over tensors, such as parameters, update all of them with one call of torch._foreach_mul_, "
    "torch._foreach_add_ or torch._foreach_lerp_. If it runs over the elements of a tensor, use one operator on the "
    "whole tensor.",
    "with torch.no_grad():  # instead of a loop over the tensors\n"
    "    torch._foreach_lerp_(averages, parameters, 1 - decay)",
)
ITEMS = Fix(
    "The loop reads or writes a tensor item by item. Use one operator on the whole tensor: bincount and index_add "
    "count or sum, arange makes numbers, and a comparison of tensors is a mask. Compute what stays the same only once.",
    "counts = torch.bincount(n * target + guess, minlength=n * n).view(n, n)  # instead of counts[t, g] += 1",
)
ELEMENTS = Fix(
    "Python sets a tensor element by element. Collect the numbers in a list or a NumPy array and make one tensor of "
    "them, or compute them with operators on whole tensors. If it is the same in each step, as a mask or a filterbank "
    "may be, build it once before the loop. A module keeps it with register_buffer.",
    "table = torch.tensor(numbers)  # numbers: a list of rows. Before the loop, if it is the same in each step",
)
NORMS = Fix(
    "torch.nn.utils.clip_grad_norm_ computes the norms of all gradients together and scales them. torch._foreach_norm "
    "returns the norm of each weight. If the norms are for a log, compute them every N steps.",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # instead of a loop over the weights",
)
PENALTY = Fix(
    "weight_decay of SGD and Adam adds the gradient of a squared penalty without computing the penalty. For another, "
    "torch._foreach_norm takes all weights, and has a backward pass.",
    "optimizer = torch.optim.SGD(model.parameters(), lr=lr, weight_decay=2 * factor)  # penalty: factor * |w|²",
)
SMALL_LAYERS = Fix(
    "One call runs many small layers. Use a larger batch, so that each operator computes more, or compile the model.",
    edits=[Compile()],
)
LOOP = Fix(
    "If rounds of the loop do not need each other's results, stack their tensors and run one operator on all of them. "
    "If they all get the same input, as for Monte Carlo dropout, repeat it along the batch: x.repeat(rounds, 1). "
    "Otherwise use a larger batch, so that each operator computes more. Compiling the function that runs the loop may "
    "help as well, or make it slower: measure it.",
    "y = torch.stack(inputs) @ weight  # instead of a loop over the inputs",
)
IN_TURN = Fix(
    "Calls that do not need each other's results, such as those for the environments of one time step, can be one call "
    "on stacked inputs, with one read. Rounds that do need them can only run for more samples at a time: torch.compile "
    "is likely to make such a loop slower.",
    "actions = policy(torch.stack(states)).tolist()  # one call and one read for all states",
)
IN_TURN_OVER_ITEMS = Fix(
    "If rounds do not need each other's results, run each operator once on all items, and turn a condition that the "
    "host reads into a mask. Rounds that do need them can only run for more samples at a time: torch.compile is likely "
    "to make such a loop slower.",
    "y = torch.where(x > 0, f(x), g(x))  # instead of a loop over i with `if x[i] > 0`",
)
